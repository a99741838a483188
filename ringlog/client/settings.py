"""Settings of clients: snake_case keywords with Kafka's meaning, checked when a client is made."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ringlog import limits
from ringlog.errors import InvalidRequest
from ringlog.model import Codec
from ringlog.net.framing import Acks

DEFAULT_BOOTSTRAP = "127.0.0.1:9400"
_BOOTSTRAP_VARIABLE = "RINGLOG_BOOTSTRAP"
_HOST_AND_PORT = re.compile(r"([\w.-]+|\[[\w:.%]+\]):([0-9]{1,5})", re.ASCII)
_TOPIC_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{limits.TOPIC_NAME_CHARS_MAX}}}")
"""As the controller has it, which a client may not import."""
_SOCKET_PATH_BYTES_MAX = 107
"""Of Linux: longer names fit no socket address."""
_MILLISECONDS_MAX = 2**31 - 1
"""24 days: every wait of the system takes so much."""
_LEVELS = {Codec.GZIP: (0, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}
"""The levels that codecs have; the others have none."""


def named_bootstrap(environment: Mapping[str, str] = os.environ) -> str | None:
    """RINGLOG_BOOTSTRAP, if it says something."""
    return environment.get(_BOOTSTRAP_VARIABLE, "").strip() or None


def default_bootstrap(environment: Mapping[str, str] = os.environ) -> str:
    """Where clients look for a node that they are not told of: at RINGLOG_BOOTSTRAP, else at the default port of this
    host. InvalidRequest names the variable when it says no address.

    >>> default_bootstrap({"RINGLOG_BOOTSTRAP": "db1:9400,db2:9400"}), default_bootstrap({})
    ('db1:9400,db2:9400', '127.0.0.1:9400')
    """
    named = named_bootstrap(environment)
    if named is None:
        return DEFAULT_BOOTSTRAP
    try:
        endpoints_of(named)
    except InvalidRequest as wrong:
        raise InvalidRequest(f"the environment variable {_BOOTSTRAP_VARIABLE} is wrong: {wrong}") from None
    return named


def endpoints_of(bootstrap: str) -> list[str]:
    """The ZeroMQ endpoints of a comma list of `host:port`, `tcp://host:port` or `ipc:///path`.

    >>> endpoints_of("127.0.0.1:9400, ipc:///run/ringlog.sock")
    ['tcp://127.0.0.1:9400', 'ipc:///run/ringlog.sock']
    """
    if not isinstance(bootstrap, str):
        raise InvalidRequest(f"bootstrap must be a str such as '{DEFAULT_BOOTSTRAP}', not {bootstrap!r}")
    return [_endpoint(part.strip()) for part in bootstrap.split(",") if part.strip()] or [
        _endpoint(DEFAULT_BOOTSTRAP)
    ]


def _endpoint(address: str) -> str:
    scheme, _, path = address.partition("://")
    if scheme == "ipc" and _is_socket_path(path):
        return address
    found = _HOST_AND_PORT.fullmatch(address.removeprefix("tcp://"))
    if found is None or not 0 < int(found[2]) < 65536:
        raise InvalidRequest(
            f"bootstrap {address!r} is no address: say host:port, tcp://host:port or ipc:///path"
        )
    return f"tcp://{found[0]}"


def _is_socket_path(path: str) -> bool:
    return bool(path) and "\0" not in path and len(path.encode(errors="replace")) <= _SOCKET_PATH_BYTES_MAX


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What every client can be told. Times without a unit in their name are seconds; none here are."""

    bootstrap: str = msgspec.field(default_factory=default_bootstrap)
    """Addresses of nodes, with commas between them. Without a word, those of the environment variable
    RINGLOG_BOOTSTRAP, or 127.0.0.1:9400."""
    client_id: str = ""
    request_timeout_ms: int = 30_000
    """How long one request waits for its answer."""
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    """After this long, what is known of a topic is asked for again in the background."""

    def __post_init__(self) -> None:
        endpoints_of(self.bootstrap)
        check_text(client_id=self.client_id)
        _check_ms(
            1,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
            metadata_max_age_ms=self.metadata_max_age_ms,
        )
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise InvalidRequest("retry_backoff_max_ms must not be below retry_backoff_ms")


class AdminSettings(ClientSettings, frozen=True, kw_only=True):
    """Those of an Admin."""


class ProducerSettings(ClientSettings, frozen=True, kw_only=True):
    """Those of a Producer."""

    acks: str | int = "all"
    """"all" (or -1): as durable as the topic says on all in-sync replicas; 1: on the leader; 0: nobody answers."""
    linger_ms: float = 0
    """How long a batch waits for more records. With 0 a small one still grows while an earlier one is in flight."""
    batch_size: int = 768 * limits.KIB
    """The most that one batch gathers. A batch costs the node the same work whether it is large or small."""
    buffer_memory: int = 64 * limits.MIB
    """Bytes of records that wait for their answer; past it `produce` blocks."""
    compression_type: str = "none"
    compression_level: int | None = None
    enable_idempotence: bool | None = None
    """What is sent again is in the log once. Without a word it is on. True asks for it whatever leader dies, as Kafka
    does, and so needs acks="all"."""
    max_in_flight_requests_per_connection: int = limits.PRODUCER_BATCHES_KEPT
    """Counted per partition. An idempotent producer may have at most 5: so many a node remembers."""
    retries: int = 2**31 - 1
    delivery_timeout_ms: int = 120_000
    """A record that is not acknowledged for this long fails; nothing else but an error without hope fails it."""
    max_block_ms: int = 60_000
    """How long `produce` waits for metadata or for room in the buffer."""
    partitioner: str = "murmur2"

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        acks_of(self.acks)
        _one_of("compression_type", self.compression_type, tuple(codec.name.lower() for codec in Codec))
        _one_of("partitioner", self.partitioner, ("murmur2",))
        _check_ms(0, linger_ms=self.linger_ms, max_block_ms=self.max_block_ms)
        _check_ms(1, delivery_timeout_ms=self.delivery_timeout_ms)
        _at_least(0, retries=self.retries)
        _check_level(self.codec, self.compression_level)
        _at_least(1, max_in_flight_requests_per_connection=self.max_in_flight_requests_per_connection)
        if self.enable_idempotence and acks_of(self.acks) is not Acks.ALL:
            raise InvalidRequest(
                f"enable_idempotence=True needs acks='all', not {self.acks!r}: what one leader alone has, or nobody "
                "answers for, may be lost with it. Leave one of them out, or set enable_idempotence=False"
            )
        most = limits.PRODUCER_BATCHES_KEPT
        if self.is_idempotent and self.max_in_flight_requests_per_connection > most:
            raise InvalidRequest(
                f"max_in_flight_requests_per_connection must be at most {most}, unless enable_idempotence=False"
            )
        largest = limits.FRAME_BYTES_MAX - 64 * limits.KIB
        if not 1 * limits.KIB <= self.batch_size <= largest:
            raise InvalidRequest(f"batch_size must lie between 1024 and {largest}, but is {self.batch_size}")
        if self.buffer_memory < self.batch_size:
            raise InvalidRequest("buffer_memory must hold at least one batch_size")

    @property
    def is_idempotent(self) -> bool:
        """Whether batches are numbered: so repeats are known, and none overtakes another."""
        return self.enable_idempotence is not False

    @property
    def few_bytes(self) -> int:
        """Records of less than this are worth waiting for more, while others of their partition are in flight."""
        return self.batch_size // 4

    @property
    def codec(self) -> Codec:
        return Codec[self.compression_type.upper()]


_ACKS = {"all": Acks.ALL, "-1": Acks.ALL, "1": Acks.LEADER, "0": Acks.NONE}


def acks_of(acks: str | int) -> Acks:
    """The Acks that a user's word stands for.

    >>> acks_of("all"), acks_of(1)
    (<Acks.ALL: 2>, <Acks.LEADER: 1>)
    """
    found = None if isinstance(acks, bool) else _ACKS.get(str(acks))
    if found is None:
        raise InvalidRequest(f"acks must be 'all' (or -1), 1 or 0, not {acks!r}")
    return found


S = TypeVar("S", bound=msgspec.Struct)


def settings_of(kind: type[S], given: Mapping[str, Any], *arguments: str) -> S:
    """Checked settings; InvalidRequest names what is wrong, and for an unknown name the nearest known one, or all there
    are. `arguments` are names that the client takes besides.

    >>> settings_of(ProducerSettings, {"linger_ms": 5}).linger_ms
    5
    >>> settings_of(ProducerSettings, {"linger": 5})
    Traceback (most recent call last):
    ringlog.errors.InvalidRequest: there is no setting 'linger'; did you mean 'linger_ms'?
    """
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            near = _nearest(name, all_names := [*arguments, *known])
            hint = f"; did you mean '{near}'?" if near else f". There are: {', '.join(all_names)}"
            raise InvalidRequest(f"there is no setting '{name}'{hint}")
    check_types(kind, given)
    return kind(**given)


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """The setting that was meant: the shortest one that goes on where the name ends, else one that looks like it.

    >>> _nearest("group", ["group_assignor", "group_id"]), _nearest("serializer", ["group_id"])
    ('group_id', None)
    """
    longer = sorted((one for one in known if one.startswith(f"{name}_")), key=len)
    return next(iter(longer or difflib.get_close_matches(name, known, n=1)), None)


def check_types(kind: type[msgspec.Struct], given: Mapping[str, Any]) -> None:
    """InvalidRequest names the first value that is not of its field's type: making a struct does not look.

    >>> check_types(ProducerSettings, {"linger_ms": "5"})
    Traceback (most recent call last):
    ringlog.errors.InvalidRequest: linger_ms = '5': Expected `float`, got `str`
    """
    for field in msgspec.structs.fields(kind):
        if field.name in given:
            try:
                msgspec.convert(given[field.name], field.type)
            except msgspec.ValidationError as wrong:
                raise InvalidRequest(f"{field.name} = {given[field.name]!r}: {wrong}") from None


def _at_least(low: int, **values: float) -> None:
    for name, value in values.items():
        if value < low:
            raise InvalidRequest(f"{name} must be at least {low}, but is {value}")


def _check_ms(low: int, **values: float) -> None:
    for name, value in values.items():
        if not math.isfinite(value) or value > _MILLISECONDS_MAX:
            raise InvalidRequest(f"{name} must be at most {_MILLISECONDS_MAX} ms (24 days), but is {value}")
    _at_least(low, **values)


def _check_level(codec: Codec, level: int | None) -> None:
    if level is None:
        return
    if codec not in _LEVELS:
        raise InvalidRequest(f"compression_level: {codec.name.lower()} has no levels; leave it out")
    low, high = _LEVELS[codec]
    if not low <= level <= high:
        raise InvalidRequest(
            f"compression_level of {codec.name.lower()} must lie between {low} and {high}, but is {level}"
        )


def check_text(**values: str) -> None:
    """InvalidRequest names what is no text: the wire carries UTF-8, which halves of letters have no form in.

    >>> check_text(client_id="caf\\u00e9")
    """
    for name, value in values.items():
        if not isinstance(value, str):
            raise InvalidRequest(f"{name} must be a str, not {value!r}")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(f"{name} {value!r} is no text that UTF-8 has a form for") from None


def check_topic_name(name: str) -> None:
    """InvalidRequest unless a topic may be called so: what can never be there is not worth waiting for.

    >>> check_topic_name("orders.eu")
    >>> check_topic_name("orders eu")
    Traceback (most recent call last):
    ringlog.errors.InvalidRequest: topic 'orders eu': use 1 to 200 of the letters a-z A-Z 0-9 . _ -
    """
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidRequest(
            f"topic {name[:300]!r}: use 1 to {limits.TOPIC_NAME_CHARS_MAX} of the letters a-z A-Z 0-9 . _ -"
        )


def refused_topic(given: object) -> TypeError:
    """What to raise for a topic that is no text."""
    return TypeError(f"topic must be a str, not {type(given).__name__}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidRequest(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
