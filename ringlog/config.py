"""The settings of a node: the only reader of the environment and of configuration files.

A setting comes from the command line, else from the file (TOML), else it has its default. Names in the file are
those of `NodeConfig`.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from ringlog.cluster_members import next_port, parse_members
from ringlog.errors import InvalidRequest
from ringlog.limits import (
    CONNECTIONS_MAX,
    DISK_RING_ENTRIES,
    GROUP_BYTES_MIN,
    MIB,
    NETS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    PREALLOCATE_BYTES_MAX,
    PREALLOCATE_BYTES_MIN,
    REPLICA_LAG_MS_DEFAULT,
    REPLICA_LAG_MS_MAX,
    REPLICA_LAG_MS_MIN,
    SHARDS_MAX,
    SPIN_US_MAX,
    TAIL_BYTES_PER_SHARD,
    WRITE_BYTES_TARGET,
)

DEFAULT_LISTEN = "tcp://127.0.0.1:9400"
CONFIG_NAME = "node.toml"


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a node may be told. Nothing has to be."""

    data_dir: str
    listen: str = DEFAULT_LISTEN
    shards: int = 0
    """0: one per core."""
    nets: int = 1
    pin: bool = True
    """Keep each shard on a core of its own."""
    shard_cores: str = ""
    """The cores for pinned shards, as `0-3,8`; empty: all, in their order."""
    net_cores: str = ""
    """The cores that network processes keep to; empty: any."""
    spin_us: int = 0
    """How long a shard or a network process looks for more work before it sleeps."""
    insecure: bool = False
    """Listen beyond this host although peers are not authenticated."""
    disk_engine: str = "auto"
    disk_depth: int = 0
    """Calls of a shard in flight beyond which no partition begins a write; 0: no bound."""
    group_bytes: int = WRITE_BYTES_TARGET
    """A write of a partition takes no further batches once it has so many bytes."""
    preallocate_bytes_max: int = PREALLOCATE_BYTES_MAX
    """Space that a partition reserves ahead at most."""
    metrics_listen: str | None = None
    tail_bytes_per_shard: int = TAIL_BYTES_PER_SHARD
    """Memory of a shard for append buffers, the recent tail and reads; less when shared memory is small."""
    default_partitions: int = 4
    """Of topics that are created without a number."""
    auto_create_topics: bool = True
    """Create a topic when a producer first names it."""
    connections_max: int = CONNECTIONS_MAX
    topic_defaults: dict[str, str | int | float] = {}
    """Settings of topics that do not say otherwise; those of the node itself keep their own."""
    node_id: int = 0
    """Which of the nodes in `cluster` this one is."""
    cluster: str = ""
    """All nodes of the cluster, this one too, as `1@host:port,2@host:port,3@host:port`; empty: a node by itself."""
    rack: str = ""
    """Where the node stands: replicas of a partition go to different racks, as far as there are."""
    advertise: str = ""
    """Where clients are told to reach a node of a cluster, as tcp://HOST:PORT; empty: where it listens."""
    replica_lag_time_max_ms: int = REPLICA_LAG_MS_DEFAULT
    """Replicas of what this node leads that have not held all of it for so long are not in sync any more."""

    def __post_init__(self) -> None:
        _require("shards", self.shards, 0, SHARDS_MAX)
        _require("nets", self.nets, 1, NETS_MAX)
        _require("tail_bytes_per_shard", self.tail_bytes_per_shard, 16 * MIB, 64 * 1024 * MIB)
        _require("default_partitions", self.default_partitions, 1, PARTITIONS_PER_TOPIC_MAX)
        _require("connections_max", self.connections_max, 1, 1_000_000)
        _require("spin_us", self.spin_us, 0, SPIN_US_MAX)
        _require("disk_depth", self.disk_depth, 0, DISK_RING_ENTRIES)
        _require("group_bytes", self.group_bytes, GROUP_BYTES_MIN, WRITE_BYTES_TARGET)
        _require(
            "preallocate_bytes_max", self.preallocate_bytes_max, PREALLOCATE_BYTES_MIN, PREALLOCATE_BYTES_MAX
        )
        _require(
            "replica_lag_time_max_ms", self.replica_lag_time_max_ms, REPLICA_LAG_MS_MIN, REPLICA_LAG_MS_MAX
        )
        for name in ("shard_cores", "net_cores"):
            parse_cores(getattr(self, name), setting=name)
        if self.disk_engine not in ("auto", "io_uring", "plain"):
            raise InvalidRequest(f"disk_engine={self.disk_engine!r}: use auto, io_uring or plain")
        require_listen(self.listen, insecure=self.insecure)
        port = self.listen.rpartition(":")[2]
        if self.listen.startswith("tcp://") and int(port) + self.nets - 1 > 65535:
            raise InvalidRequest(
                f"listen={self.listen!r}: {self.nets} network processes need {self.nets} ports in a row from there on"
            )
        if self.metrics_listen is not None:
            _require_metrics_listen(self.metrics_listen, insecure=self.insecure)
        self._require_cluster()

    def _require_cluster(self) -> None:
        members = self.cluster_members
        if not members:
            if self.node_id or self.rack or self.advertise:
                raise InvalidRequest(
                    "node_id, rack and advertise are those of a node in a cluster. Name all its nodes with --cluster "
                    "1@HOST:PORT,2@HOST:PORT,3@HOST:PORT, or leave them out"
                )
            return
        if not self.node_id and self.node_id not in members:
            raise InvalidRequest(
                f"node_id is missing. Say with --node-id which of {', '.join(map(str, members))} in "
                f"cluster={self.cluster!r} this node is"
            )
        if self.node_id not in members:
            raise InvalidRequest(
                f"node_id={self.node_id} is not in cluster={self.cluster!r}. Say with --node-id which of "
                f"{', '.join(map(str, members))} this node is"
            )
        require_listen(members[self.node_id], insecure=self.insecure, setting="cluster")
        if not self.listen.startswith("tcp://"):
            raise InvalidRequest(f"listen={self.listen!r}: clients of a cluster need tcp://HOST:PORT")
        if self.advertise:
            require_listen(self.advertise, insecure=True, setting="advertise")
        elif _is_any_address(self.listen):
            raise InvalidRequest(
                f"listen={self.listen!r} is no address that clients elsewhere could use. Name one with advertise, as "
                "tcp://HOST:PORT"
            )

    @property
    def cluster_members(self) -> dict[int, str]:
        """Where the controller of each node listens, by the node's id; empty for a node by itself."""
        return parse_members(self.cluster)

    @property
    def peer_listen(self) -> str:
        """Where other nodes of the cluster fetch from this one; empty for a node by itself."""
        return next_port(self.cluster_members[self.node_id]) if self.cluster else ""

    @property
    def shard_count(self) -> int:
        """How many shards there will be."""
        return self.shards or len(os.sched_getaffinity(0))


def parse_cores(text: str, *, setting: str = "cores") -> list[int]:
    """The cores of a list of numbers and ranges, in its order; none for an empty one.

    >>> parse_cores("0-2,8"), parse_cores("")
    ([0, 1, 2, 8], [])
    """
    cores: list[int] = []
    for part in text.split(",") if text else []:
        found = re.fullmatch(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*", part)
        if not found or int(found[2] or found[1]) < int(found[1]):
            raise InvalidRequest(
                f"{setting}={text!r}: use numbers of cores and ranges of them, such as 0-3,8"
            )
        cores += range(int(found[1]), int(found[2] or found[1]) + 1)
    return cores


def require_listen(listen: str, *, insecure: bool, setting: str = "listen") -> None:
    """Raise unless a node may listen there.

    >>> require_listen("tcp://127.0.0.1:9400", insecure=False)
    """
    scheme, found, rest = listen.partition("://")
    if not found or scheme not in ("tcp", "ipc") or not rest:
        raise InvalidRequest(f"{setting}={listen!r}: use tcp://HOST:PORT or ipc:///PATH")
    if scheme == "ipc":
        if not rest.startswith("/"):  # clients are told it, and each stands in a directory of its own
            raise InvalidRequest(f"{setting}={listen!r}: the path must be absolute, so use ipc:///PATH")
        return
    host, found, port = rest.rpartition(":")
    if not found or not _is_port(port):
        raise InvalidRequest(
            f"{setting}={listen!r}: the port must be a number from 0 (any free one) to 65535"
        )
    if not _is_loopback(host) and not insecure:
        raise InvalidRequest(
            f"{setting}={listen!r} is open to other hosts, and ringlog does not authenticate peers yet: whoever "
            "reaches the port can read and write everything. Use --insecure if only trusted hosts can"
        )


def _require_metrics_listen(listen: str, *, insecure: bool) -> None:
    host, _, port = listen.rpartition(":")
    if not host or not _is_port(port) or "/" in host:
        raise InvalidRequest(f"metrics_listen={listen!r}: use HOST:PORT")
    if not _is_loopback(host) and not insecure:
        raise InvalidRequest(
            f"metrics_listen={listen!r}: every host that reaches it could read the metrics. "
            f"Use 127.0.0.1:{port}, or add --insecure if they may"
        )


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535


def _is_loopback(host: str) -> bool:
    """Whether only this host can reach it; a name that merely looks like a loopback address is not one.

    >>> _is_loopback("127.0.0.1"), _is_loopback("127.example.org")
    (True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _is_any_address(endpoint: str) -> bool:
    """Whether it stands for all addresses of the host.

    >>> _is_any_address("tcp://0.0.0.0:9400"), _is_any_address("tcp://[::1]:9400")
    (True, False)
    """
    host = endpoint.removeprefix("tcp://").rpartition(":")[0]
    return host in ("*", "0.0.0.0", "[::]", "")


def _require(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidRequest(f"{name}={value}: use {low} to {high}")


def default_data_dir(environment: Mapping[str, str] = os.environ) -> str:
    """Where a node keeps its data when nobody says where: RINGLOG_DATA_DIR, or the user's data folder.

    >>> default_data_dir({"HOME": "/home/ada"})
    '/home/ada/.local/share/ringlog'
    """
    named = named_data_dir(environment)
    if named is not None:
        return named
    base = environment.get("XDG_DATA_HOME") or os.path.join(
        environment.get("HOME") or os.path.expanduser("~"), ".local", "share"
    )
    return os.path.join(base, "ringlog")


def named_data_dir(environment: Mapping[str, str] = os.environ) -> str | None:
    """RINGLOG_DATA_DIR, if it says something."""
    return environment.get("RINGLOG_DATA_DIR") or None


def config_path_of(data_dir: str) -> str:
    """The file that a node of this directory reads when it is not told another."""
    return os.path.join(data_dir, CONFIG_NAME)


def load_config(path: str | None = None, **given: Any) -> NodeConfig:
    """The settings of a node: `given` (None: not given) over the file over the defaults. Without a path, the file is
    node.toml in the data directory, if there is one.

    >>> load_config(data_dir="/tmp/x", shards=2, listen=None).shards
    2
    """
    settings: dict[str, Any] = {}
    if path is None:
        given["data_dir"] = given.get("data_dir") or default_data_dir()
        usual = config_path_of(os.path.expanduser(given["data_dir"]))
        path = usual if os.path.exists(usual) else None
    if path is not None:
        with open(path, "rb") as file:
            try:
                settings = tomllib.load(file)
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
                raise InvalidRequest(f"{path}: not TOML: {wrong}") from None
    names = [field.name for field in msgspec.structs.fields(NodeConfig)]
    for name in settings:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else f". There are: {', '.join(names)}"
            raise InvalidRequest(f"{path}: no setting is named {name!r}{hint}")
    settings |= {name: value for name, value in given.items() if value is not None}
    settings.setdefault("data_dir", default_data_dir())
    try:
        config = msgspec.convert(settings, NodeConfig)
    except msgspec.ValidationError as wrong:
        raise InvalidRequest(f"{path or 'settings'}: {wrong}") from None
    data_dir = os.path.abspath(os.path.expanduser(config.data_dir))
    return msgspec.structs.replace(config, data_dir=data_dir)
