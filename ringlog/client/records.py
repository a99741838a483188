"""Records as a consumer hands them out: a pair of where the bytes lie and which one, decoded when asked.

`poll()` makes them in bulk, natively; a field costs something only when it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ringlog.native import _kernel
from ringlog.records.decode import Records

Headers = list[tuple[str, bytes | None]]


class Source:
    """The records of one fetched buffer. Never holds a record: the garbage collector does not look at those."""

    __slots__ = ("count", "find", "headers", "key", "offset", "partition", "timestamp", "topic", "value")

    offset: Callable[[int], int]
    timestamp: Callable[[int], int]
    key: Callable[[int], bytes | None]
    value: Callable[[int], bytes | None]
    headers: Callable[[int], Headers]

    def __init__(self, topic: str, partition: int, records: Records) -> None:
        self.topic = topic
        self.partition = partition
        index = records.fields
        self.count = len(index)
        self.find = index.find
        # Bound once, so that a field costs one call.
        self.offset, self.timestamp, self.headers = index.offset, index.timestamp, index.headers
        self.key, self.value = index.key, index.value


class _Decoded(NamedTuple):
    """A source of one record that stands for itself."""

    topic: str
    partition: int
    fields: tuple[int, int, bytes | None, bytes | None, Headers]

    def offset(self, _: int) -> int:
        return self.fields[0]

    def timestamp(self, _: int) -> int:
        return self.fields[1]

    def key(self, _: int) -> bytes | None:
        return self.fields[2]

    def value(self, _: int) -> bytes | None:
        return self.fields[3]

    def headers(self, _: int) -> Headers:
        return list(self.fields[4])


class ConsumerRecord(tuple[Any, int]):
    """One record and where it came from; its fields are decoded each time they are asked for.

    A record keeps the buffer alive that it was fetched in, which may hold thousands of others. Records that are
    to be kept for long are better kept as `record.copy()`, which stands for itself.

    >>> record = ConsumerRecord.of("lamps", 0, 5, 17, b"hall", b"on", [("by", b"ann")])
    >>> record.value, record.offset, record.headers
    (b'on', 5, [('by', b'ann')])
    >>> record.copy() == record
    True
    """

    __slots__ = ()

    @classmethod
    def of(
        cls,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None = None,
    ) -> ConsumerRecord:
        """A record that stands for itself."""
        return cls((_Decoded(topic, partition, (offset, timestamp, key, value, list(headers or ()))), 0))

    @property
    def topic(self) -> str:
        return self[0].topic  # type: ignore[no-any-return]

    @property
    def partition(self) -> int:
        return self[0].partition  # type: ignore[no-any-return]

    @property
    def offset(self) -> int:
        return self[0].offset(self[1])  # type: ignore[no-any-return]

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970, by the producer's clock or, for append time, the node's."""
        return self[0].timestamp(self[1])  # type: ignore[no-any-return]

    @property
    def key(self) -> bytes | None:
        return self[0].key(self[1])  # type: ignore[no-any-return]

    @property
    def value(self) -> bytes | None:
        return self[0].value(self[1])  # type: ignore[no-any-return]

    @property
    def headers(self) -> Headers:
        return self[0].headers(self[1])  # type: ignore[no-any-return]

    def copy(self) -> ConsumerRecord:
        """The same record, all fields decoded, which keeps no fetched buffer alive."""
        return ConsumerRecord.of(*self._fields())

    def _fields(self) -> tuple[str, int, int, int, bytes | None, bytes | None, Headers]:
        source, i = self
        return (
            source.topic,
            source.partition,
            source.offset(i),
            source.timestamp(i),
            source.key(i),
            source.value(i),
            source.headers(i),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == other._fields()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self) -> tuple[Any, ...]:
        return (ConsumerRecord.of, self._fields())

    def __repr__(self) -> str:
        topic, partition, offset, timestamp, key, value, headers = self._fields()
        return (
            f"ConsumerRecord(topic={topic!r}, partition={partition}, offset={offset}, timestamp={timestamp}, "
            f"key={key!r}, value={value!r}, headers={headers!r})"
        )


def records_of(source: Source, start: int, stop: int) -> list[ConsumerRecord]:
    """The records `start` to `stop - 1` of a source; each costs a tuple, and none of its fields."""
    return _kernel.tuple_pairs(ConsumerRecord, source, start, stop)
