"""The settings of a topic by the names that Kafka's users know, and the log settings that they stand for. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ringlog.errors import InvalidRequest
from ringlog.limits import (
    BATCH_HEADER_BYTES,
    FRAME_BYTES_MAX,
    REPLICA_HEAD_BYTES,
    REPLICATION_FACTOR_MAX,
    RETENTION_MS_DEFAULT,
    SEGMENT_BYTES_DEFAULT,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SEGMENT_MS_DEFAULT,
    TOMBSTONE_MS_DEFAULT,
)
from ringlog.model import Codec
from ringlog.ring.frame import FRAME_HEADER_BYTES

if TYPE_CHECKING:
    from ringlog.controller.image import MetadataImage
    from ringlog.controller.records import Partition

MESSAGE_BYTES_MAX = FRAME_BYTES_MAX - FRAME_HEADER_BYTES - REPLICA_HEAD_BYTES
_TIME_MS_MAX = 2**63 - 1
NOTHING: Mapping[str, str] = {}
MIN_INSYNC = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
INTERNAL_PREFIX = "__"
"""Topics with such names are the node's own: what a node says of topics does not hold for them."""
COMPRESSIONS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""Values of `compression.type` by which a node compresses anew what came otherwise."""


class Setting(NamedTuple):
    """A setting of a topic: its default, what it means, and who checks it."""

    default: str
    meaning: str
    check: Callable[[str], None]


def _whole_number(low: int, high: int) -> Callable[[str], None]:
    def check(text: str) -> None:
        # Length and letters first: int() takes digits of all scripts, and raises on very many.
        if not re.fullmatch(r"-?[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise InvalidRequest(f"use a whole number from {low} to {high}")

    return check


def _share(text: str) -> None:
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", text) or not 0 <= float(text) <= 1:
        raise InvalidRequest("use a number from 0 to 1")


def _one_of(*words: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text not in words:
            raise InvalidRequest(f"use {' or '.join(words)}")

    return check


def _flush_policy(text: str) -> None:
    if not re.fullmatch(r"ack|os|interval:[1-9][0-9]{0,6}", text):
        raise InvalidRequest("use ack, interval:MS (1 to 9999999) or os")


SETTINGS: dict[str, Setting] = {
    "flush": Setting(
        "ack", "when records are flushed: ack (before the ack), interval:MS or os", _flush_policy
    ),
    "segment.bytes": Setting(
        str(SEGMENT_BYTES_DEFAULT),
        "a segment file is closed at this size",
        _whole_number(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
    ),
    "segment.ms": Setting(str(SEGMENT_MS_DEFAULT), "or at this age", _whole_number(1, 2**62)),
    "max.message.bytes": Setting(
        str(1024 * 1024 + BATCH_HEADER_BYTES),
        "largest batch",
        _whole_number(BATCH_HEADER_BYTES + 1, MESSAGE_BYTES_MAX),
    ),
    "message.timestamp.type": Setting(
        "CreateTime", "whose clock records have", _one_of("CreateTime", "LogAppendTime")
    ),
    "cleanup.policy": Setting(
        "delete",
        "what becomes of old records: delete, compact (the latest of each key stays) or both",
        _one_of("delete", "compact", "compact,delete", "delete,compact"),
    ),
    "retention.ms": Setting(
        str(RETENTION_MS_DEFAULT),
        "segments older than this are deleted; -1: at no age",
        _whole_number(-1, _TIME_MS_MAX),
    ),
    "retention.bytes": Setting(
        "-1",
        "the oldest segments of a partition beyond this size are deleted; -1: at no size",
        _whole_number(-1, 2**62),
    ),
    "delete.retention.ms": Setting(
        str(TOMBSTONE_MS_DEFAULT),
        "how long compaction keeps a record without a value, so that readers learn of the deletion",
        _whole_number(0, _TIME_MS_MAX),
    ),
    "min.cleanable.dirty.ratio": Setting(
        "0.5", "compact when this share of the bytes was not compacted yet", _share
    ),
    "min.compaction.lag.ms": Setting(
        "0", "records younger than this are not compacted", _whole_number(0, _TIME_MS_MAX)
    ),
    "max.compaction.lag.ms": Setting(
        str(_TIME_MS_MAX), "records are compacted at this age at the latest", _whole_number(1, _TIME_MS_MAX)
    ),
    MIN_INSYNC: Setting(
        "1",
        "with fewer replicas in sync than this, records are refused (acks=all)",
        _whole_number(1, REPLICATION_FACTOR_MAX),
    ),
    UNCLEAN_ELECTION: Setting(
        "false",
        "whether a replica that is not in sync may lead when all that are in sync are gone: records may be lost",
        _one_of("true", "false"),
    ),
    "compression.type": Setting(
        "producer",
        "what batches are compressed with: producer (as they came), a codec, or uncompressed",
        _one_of("producer", *COMPRESSIONS),
    ),
}


def check_config(config: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a setting that there is none of, or a value that it cannot have.

    >>> check_config({"flush": "ack", "segment.bytes": "1048576"})
    """
    for name, value in config.items():
        setting = SETTINGS[require_setting(name)]
        try:
            setting.check(value)
        except InvalidRequest as wrong:
            raise InvalidRequest(f"{name}={value!r}: {wrong}") from None
    full = with_defaults(config)
    if int(full["min.compaction.lag.ms"]) > int(full["max.compaction.lag.ms"]):
        raise InvalidRequest("min.compaction.lag.ms is above max.compaction.lag.ms: use a smaller one")


def require_setting(name: str) -> str:
    """The name, if there is a setting of that name; InvalidRequest names the nearest otherwise."""
    if name not in SETTINGS:
        near = difflib.get_close_matches(name, SETTINGS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(SETTINGS)}"
        raise InvalidRequest(f"no topic setting is named {name!r}; {hint}")
    return name


def with_defaults(config: Mapping[str, str], node: Mapping[str, str] = NOTHING) -> dict[str, str]:
    """All settings of a topic: its own, else those of the node, else those of this version."""
    return {name: config.get(name, node.get(name, setting.default)) for name, setting in SETTINGS.items()}


def settings_of(name: str, config: Mapping[str, str], node: Mapping[str, str] = NOTHING) -> dict[str, str]:
    """All settings that hold for a topic. The node's own topics do not follow its defaults: with another flush policy
    commits would mean less.

    >>> node = {"flush": "os"}
    >>> settings_of("t", {}, node)["flush"], settings_of("__consumer_offsets", {}, node)["flush"]
    ('os', 'ack')
    """
    return with_defaults(config, NOTHING if name.startswith(INTERNAL_PREFIX) else node)


def settings_in(image: MetadataImage, partition: Partition, node: Mapping[str, str]) -> dict[str, str]:
    """All settings that hold for a partition."""
    topic = image.topics_by_id[partition.topic_id]
    return settings_of(topic.name, topic.config, node)


def allows_unclean(name: str, config: Mapping[str, str], node: Mapping[str, str] = NOTHING) -> bool:
    """Whether a topic prefers a leader that lacks records to none.

    >>> allows_unclean("t", {}), allows_unclean("t", {}, {"unclean.leader.election.enable": "true"})
    (False, True)
    """
    return settings_of(name, config, node)[UNCLEAN_ELECTION] == "true"


def node_defaults(given: Mapping[str, str | int | float]) -> dict[str, str]:
    """What a node's configuration says of topics, checked.

    >>> node_defaults({"retention.ms": 3600000, "cleanup.policy": "compact"})
    {'retention.ms': '3600000', 'cleanup.policy': 'compact'}
    """
    found = {name: str(value) for name, value in given.items()}
    try:
        check_config(found)
    except InvalidRequest as wrong:
        raise InvalidRequest(f"topic_defaults: {wrong}") from None
    return found
