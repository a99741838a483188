"""C1: of all acknowledged records none is lost or doubled, and no poll goes back or skips.

The judge believes nobody: acknowledgements, polls of every consumer and the last reading of the whole log must tell
the same story of which record stands at which offset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ringlog.model import Durability
from tests.support.checkers.recording import (
    Acked,
    AnyEvent,
    Polled,
    Positioned,
    ReadAll,
    RecordId,
    Sent,
    read_recordings,
)
from tests.support.checkers.violations import Rule, Violation


def check_history(
    events: Iterable[AnyEvent],
    *,
    durability_min: Durability = Durability.FLUSHED,
    idempotent: bool = True,
) -> list[Violation]:
    """Everything in a history that must not be. Without `idempotent`, records that were never acknowledged may
    stand in the log more than once.

    >>> check_history([Sent("p", "t-0", [0]), Positioned("c", "t-0", 0), Polled("c", "t-0", [0], [("p", 0)])])
    []
    """
    return list(_History(events, durability_min, idempotent).run())


def check_recordings(directory: str, *, durability_min: Durability = Durability.FLUSHED) -> list[Violation]:
    """The same, of what the workers have written into a directory."""
    return check_history(read_recordings(directory), durability_min=durability_min)


def name_of(record: RecordId | None) -> str:
    """A record's name for people.

    >>> name_of(("p1", 7)), name_of(None)
    ('p1/7', 'bytes that nobody sent')
    """
    return "bytes that nobody sent" if record is None else f"{record[0]}/{record[1]}"


class _Place:
    """What is known of one partition."""

    def __init__(self) -> None:
        self.holders: dict[int, dict[RecordId | None, str]] = defaultdict(dict)
        """By offset: the records that somebody saw there, and who."""
        self.acked: dict[RecordId, int] = {}
        self.read: dict[int, dict[int, RecordId | None]] = {}
        """The readings of the whole log, by their end."""


class _History:
    """One judgement of one history."""

    def __init__(self, events: Iterable[AnyEvent], durability_min: Durability, idempotent: bool) -> None:
        self._events = list(events)
        self._durability_min = durability_min
        self._idempotent = idempotent
        self._sent: dict[RecordId, str] = {}
        self._places: dict[str, _Place] = defaultdict(_Place)

    def run(self) -> Iterator[Violation]:
        for event in self._events:
            if isinstance(event, Sent):
                self._sent |= {(event.worker, number): event.partition for number in event.numbers}
        yield from self._hear_acks()
        yield from self._follow_consumers()
        for partition, place in sorted(self._places.items()):
            yield from self._judge_offsets(partition, place)
            yield from self._judge_records(partition, place)
            yield from self._judge_order(partition, place)
            yield from self._judge_losses(partition, place)

    # -- what was said -------------------------------------------------------------------------------------

    def _hear_acks(self) -> Iterator[Violation]:
        for event in self._events:
            if not isinstance(event, Acked):
                continue
            record = (event.worker, event.number)
            place = self._places[event.partition]
            place.holders[event.offset].setdefault(record, "its acknowledgement")
            place.acked.setdefault(record, event.offset)
            if Durability[event.durability.upper()] < self._durability_min:
                found = f"{name_of(record)} at {event.offset} acknowledged as {event.durability}"
                yield Violation(Rule.WEAK_ACK, event.partition, found)

    def _follow_consumers(self) -> Iterator[Violation]:
        positions: dict[tuple[str, str], int] = {}
        readings: dict[tuple[str, str], dict[int, RecordId | None]] = {}
        for event in self._events:
            if isinstance(event, Positioned):
                positions[event.worker, event.partition] = event.offset
                readings[event.worker, event.partition] = {}
            elif isinstance(event, Polled):
                key = (event.worker, event.partition)
                place, reading = self._places[event.partition], readings.setdefault(key, {})
                for offset, record in zip(event.offsets, event.ids, strict=True):
                    place.holders[offset].setdefault(record, f"a poll of {event.worker}")
                    reading[offset] = record
                    yield from _judge_step(event, positions.get(key, offset), offset)
                    positions[key] = offset + 1
            elif isinstance(event, ReadAll):
                key = (event.worker, event.partition)
                self._places[event.partition].read[event.end_offset] = readings.get(key, {})
                if (at := positions.get(key, 0)) < event.end_offset:
                    found = f"{event.worker} ended at {at}, and the log ends at {event.end_offset}"
                    yield Violation(Rule.SKIPPED, event.partition, found)

    # -- what must hold ------------------------------------------------------------------------------------

    def _judge_offsets(self, partition: str, place: _Place) -> Iterator[Violation]:
        for offset, holders in sorted(place.holders.items()):
            if len(holders) > 1:
                found = " and ".join(f"{name_of(record)} by {who}" for record, who in holders.items())
                yield Violation(Rule.TWO_VALUES, partition, f"at {offset} {found}")

    def _judge_records(self, partition: str, place: _Place) -> Iterator[Violation]:
        offsets: dict[RecordId, list[int]] = defaultdict(list)
        for offset, holders in sorted(place.holders.items()):
            for record in holders:
                sent_to = self._sent.get(record) if record else None
                if record is None or sent_to != partition:
                    found = f"{name_of(record)} at {offset}, which was sent to {sent_to or 'no partition'}"
                    yield Violation(Rule.INVENTED, partition, found)
                else:
                    offsets[record].append(offset)
        for record, stands_at in offsets.items():
            if len(stands_at) > 1 and (self._idempotent or record in place.acked):
                yield Violation(Rule.TWO_OFFSETS, partition, f"{name_of(record)} at {stands_at}")

    def _judge_order(self, partition: str, place: _Place) -> Iterator[Violation]:
        last: dict[str, tuple[int, int]] = {}
        seen: set[RecordId] = set()
        for offset, holders in sorted(place.holders.items()):
            for record in holders:
                if record is None or record in seen:
                    continue  # one that stands twice is reported as such, and once is enough
                seen.add(record)
                worker, number = record
                before, before_offset = last.get(worker, (-1, -1))
                if number < before:
                    found = (
                        f"{worker}/{before} at {before_offset}, and {name_of(record)} after it at {offset}"
                    )
                    yield Violation(Rule.PRODUCER_ORDER, partition, found)
                last[worker] = (number, offset)

    def _judge_losses(self, partition: str, place: _Place) -> Iterator[Violation]:
        if not place.read:
            if place.acked:
                found = f"{len(place.acked)} acknowledged records, and nobody read the whole log"
                yield Violation(Rule.UNREAD, partition, found)
            return
        end_offset, reading = max(place.read.items())
        for record, offset in place.acked.items():
            if reading.get(offset) != record:
                where = "and the log ends before it" if offset >= end_offset else "and is not there"
                found = f"{name_of(record)}, acknowledged at {offset}, {where}"
                yield Violation(Rule.LOST, partition, found)
        for offset, holders in sorted(place.holders.items()):
            for record, who in holders.items():
                if record in place.acked or reading.get(offset) == record:
                    continue
                yield Violation(
                    Rule.LOST, partition, f"{name_of(record)}, seen at {offset} by {who}, is not there"
                )


def _judge_step(event: Polled, expected: int, offset: int) -> Iterator[Violation]:
    if offset < expected:
        found = f"{offset} polled by {event.worker}, which expects {expected}"
        yield Violation(Rule.GOING_BACK, event.partition, found)
    elif offset > expected:
        found = f"{offset} polled by {event.worker}, which expects {expected}"
        yield Violation(Rule.SKIPPED, event.partition, found)
