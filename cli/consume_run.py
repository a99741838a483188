"""Reads a topic for `ringlog consume`: finds where to begin and end, and prints between."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cli.clients import open_admin, open_consumer
from cli.counted import counted
from cli.output import GatheredOutput
from cli.record_format import BulkFormatter
from cli.start_point import StartKind, StartPoint
from cli.topic_errors import naming_near_topics
from ringlog.errors import InvalidRequest
from ringlog.model import TopicPartition

if TYPE_CHECKING:
    from ringlog import Consumer

RECORDS_PER_POLL = 10_000
POLL_MS = 500


@dataclass(frozen=True, slots=True)
class ConsumePlan:
    """What the user asked for."""

    topic: str
    start: StartPoint
    partitions: Sequence[int]
    """None named: all."""
    count: int | None
    follow: bool
    as_json: bool = False


def consume_topic(bootstrap: str, plan: ConsumePlan, formatter: BulkFormatter) -> None:
    """Print records until the count, the end or Ctrl-C."""
    with (
        naming_near_topics(plan.topic, lambda: open_admin(bootstrap)),
        open_consumer(bootstrap, auto_offset_reset="earliest") as consumer,
        GatheredOutput() as out,
    ):
        places = _places(consumer, plan)
        ends = consumer.end_offsets(places)
        begins = _begins(consumer, plan.start, places, ends)
        first = consumer.beginning_offsets(places)
        # No partition can be read below its start, nor beyond its end.
        consumer.assign([(*place, min(max(begins[place], first[place]), ends[place])) for place in places])
        shown = _print_all(consumer, plan, begins, ends, formatter, out)
    is_beyond = plan.start.kind is StartKind.OFFSET and plan.start.value > max(ends.values())
    if not shown and plan.count != 0 and not plan.as_json and not is_beyond:  # else that is told already
        print(f"ringlog: {plan.topic} has no records to show; --follow waits for some.", file=sys.stderr)


def _places(consumer: Consumer, plan: ConsumePlan) -> list[TopicPartition]:
    there = consumer.partitions_for_topic(plan.topic)
    for wanted in plan.partitions:
        if wanted not in there:
            raise InvalidRequest(
                f"{plan.topic} has no partition {wanted}. It has {counted(len(there), 'partition')}, from 0 on."
            )
    return [TopicPartition(plan.topic, partition) for partition in plan.partitions or sorted(there)]


def _begins(
    consumer: Consumer,
    start: StartPoint,
    places: Sequence[TopicPartition],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The offsets below which nothing is to be shown."""
    match start.kind:
        case StartKind.BEGINNING:
            return dict.fromkeys(places, 0)
        case StartKind.END:
            return dict(ends)
        case StartKind.OFFSET:
            longest = max(ends.values())
            if start.value > longest:
                print(
                    f"ringlog: there is no offset {start.value} yet; the next is {longest}.", file=sys.stderr
                )
            return dict.fromkeys(places, start.value)
        case StartKind.TIME:
            found = consumer.offsets_for_times(dict.fromkeys(places, start.value))
            return {place: ends[place] if at is None else at.offset for place, at in found.items()}


def _print_all(
    consumer: Consumer,
    plan: ConsumePlan,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    formatter: BulkFormatter,
    out: GatheredOutput,
) -> int:
    """How many were shown."""
    left = most = sys.maxsize if plan.count is None else plan.count
    unfinished = (
        set(ends) if plan.follow else {place for place in ends if consumer.position(place) < ends[place]}
    )
    consumer.pause(*(set(ends) - unfinished))
    while left and unfinished:
        records = consumer.poll(timeout_ms=POLL_MS, max_records=min(left, RECORDS_PER_POLL))
        positions = {place: consumer.position(place) for place in unfinished}
        shown = _inside(records, positions, begins, None if plan.follow else ends)
        out.write(formatter(shown))
        out.flush()
        left -= len(shown)
        if not plan.follow:
            done = {place for place, position in positions.items() if position >= ends[place]}
            unfinished -= done
            consumer.pause(*done)
    return most - left


def _inside(
    records: list[Any],
    positions: Mapping[TopicPartition, int],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None,
) -> list[Any]:
    """The records from their partition's begin to its end. Looks at single ones only where a bound was crossed."""
    early = {place for place in positions if begins[place] > 0}
    late = {place for place, position in positions.items() if ends is not None and position > ends[place]}
    if not records or not (early or late):
        return records
    topic = records[0].topic
    low = {place.partition: begins[place] for place in early}
    high = {place.partition: ends[place] for place in late if ends is not None and place.topic == topic}
    return [r for r in records if low.get(r.partition, 0) <= r.offset < high.get(r.partition, sys.maxsize)]
