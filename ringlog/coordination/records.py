"""The records of the offsets topic: a key and a value each, so that compaction keeps the latest of every key. Pure.

| key | value | without a value |
| --- | --- | --- |
| GroupKey | GroupValue | the group is forgotten |
| MemberKey | MemberValue | the member has left |
| TargetKey | TargetValue | the member has left |
| HoldingKey | HoldingValue | the member has left |
| OffsetKey | OffsetValue | nothing is committed |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ringlog.errors import CorruptFrame
from ringlog.model import TopicPartition


class _Key(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """What a record is about."""


class _Value(msgspec.Struct, array_like=True, frozen=True):
    """What a record says. Fields are only ever added at the end, with a default."""


class GroupKey(_Key, frozen=True, tag="group"):
    group: str


class MemberKey(_Key, frozen=True, tag="member"):
    group: str
    member: str


class TargetKey(_Key, frozen=True, tag="target"):
    group: str
    member: str


class HoldingKey(_Key, frozen=True, tag="holding"):
    group: str
    member: str


class OffsetKey(_Key, frozen=True, tag="offset", gc=False):
    group: str
    topic: str
    partition: int


class GroupValue(_Value, frozen=True):
    """A group as a whole."""

    epoch: int
    """Grows whenever the target is made anew. Members' epochs are taken from the same count."""
    assignor: str
    topics: dict[str, tuple[int, int]]
    """The topics that the target was made for: id and number of partitions."""
    empty_since_ms: int
    """-1: it has members."""


class MemberValue(_Value, frozen=True):
    """What a member said of itself."""

    topics: tuple[str, ...]
    pattern: str | None
    session_timeout_ms: int
    instance_id: str
    assignor: str
    client_id: str
    predecessor: str = ""
    """The member that had the same instance id before."""


class TargetValue(_Value, frozen=True):
    """What a member is to hold in the end."""

    partitions: dict[str, list[int]]


class HoldingValue(_Value, frozen=True):
    """What a member was told to hold, and what it has perhaps not given up yet."""

    epoch: int
    holdings: dict[str, list[tuple[int, int, bool]]]
    """By topic: index, the member epoch that it was given with, and whether it is to be given up."""


class OffsetValue(_Value, frozen=True, gc=False):
    """How far a group has come in a partition."""

    offset: int
    metadata: str
    commit_ms: int
    topic_id: int
    member: str
    """Who committed it; "" for a reset."""
    sequence: int
    """Of the commit, as that member counts."""


Key = GroupKey | MemberKey | TargetKey | HoldingKey | OffsetKey
Value = GroupValue | MemberValue | TargetValue | HoldingValue | OffsetValue


class Record(NamedTuple):
    """A change. `value` None: what the key stands for is no more."""

    key: Key
    value: Value | None


_encoder = msgspec.msgpack.Encoder()
_keys: msgspec.msgpack.Decoder[Key] = msgspec.msgpack.Decoder(Key)
_values: dict[type, msgspec.msgpack.Decoder[Value]] = {
    GroupKey: msgspec.msgpack.Decoder(GroupValue),
    MemberKey: msgspec.msgpack.Decoder(MemberValue),
    TargetKey: msgspec.msgpack.Decoder(TargetValue),
    HoldingKey: msgspec.msgpack.Decoder(HoldingValue),
    OffsetKey: msgspec.msgpack.Decoder(OffsetValue),
}


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log.

    >>> key, value = encode_record(Record(OffsetKey("g", "t", 0), OffsetValue(7, "", 0, 1, "m", 1)))
    >>> decode_record(key, value).value.offset
    7
    """
    key, value = record
    return _encoder.encode(key), None if value is None else _encoder.encode(value)


def decode_record(key: bytes, value: bytes | None) -> Record:
    """A record of the log."""
    try:
        decoded = _keys.decode(key)
        return Record(decoded, None if value is None else _values[type(decoded)].decode(value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise CorruptFrame("group record", 0, str(wrong)) from None


def by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions, grouped and in order.

    >>> by_topic([TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)])
    {'a': [0], 'b': [0, 1]}
    """
    grouped: dict[str, list[int]] = {}
    for topic, index in sorted(tps):
        grouped.setdefault(topic, []).append(index)
    return grouped


def partitions_in(grouped: dict[str, list[int]]) -> frozenset[TopicPartition]:
    """The inverse of `by_topic`."""
    return frozenset(TopicPartition(topic, index) for topic, some in grouped.items() for index in some)
