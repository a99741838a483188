"""Asks a node for offsets of partitions: the ends of their logs, or the first record after a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ringlog.client.assigned import Place
from ringlog.client.connection import Connection
from ringlog.client.lookups import place_of
from ringlog.errors import RequestTimeout, RinglogError, StaleMetadata, UnknownTopic
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import FoundOffset, ListOffsetsReply, ListOffsetsRequest, OffsetQuery
from ringlog.net.wire_errors import error_by_number


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: int


def places(
    connection: Connection, tps: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, Place]:
    """Where partitions are served. UnknownTopic for one that is not there."""
    deadline_s = time.monotonic() + timeout_s
    found: dict[TopicPartition, Place] = {}
    for tp in tps:
        left_s = max(deadline_s - time.monotonic(), 0.001)
        place = place_of(connection.topic(tp.topic, timeout_s=left_s), tp.partition)
        if place is None:
            # It may have been added since we last looked.
            connection.forget(tp.topic)
            topic = connection.topic(tp.topic, timeout_s=left_s)
            place = place_of(topic, tp.partition)
            if place is None:
                count = len(topic.partitions)
                raise UnknownTopic(f"there is no {tp}: topic '{tp.topic}' has partitions 0 to {count - 1}")
        found[tp] = place
    return found


def list_offsets(
    connection: Connection, queries: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """For each partition the answer to EARLIEST, LATEST or a time in milliseconds; None: no record is that young."""
    deadline_s = time.monotonic() + timeout_s
    answers: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    left = dict(queries)
    backoff_s = connection.settings.retry_backoff_ms / 1000
    while left:
        error: RinglogError | None = None
        rows: dict[TopicPartition, FoundOffset] = {}
        try:
            rows = _ask(connection, left, deadline_s)
        except StaleMetadata as stale:
            error = stale
            for tp in left:
                connection.forget(tp.topic)
        for tp, row in rows.items():
            if row.error:
                error = error_by_number(row.error, f"{tp}: its offsets were not found")
                if isinstance(error, StaleMetadata):
                    connection.forget(tp.topic)
                elif not error.retriable:
                    raise error
            else:
                answers[tp] = OffsetAndTimestamp(row.offset, row.timestamp) if row.offset >= 0 else None
                del left[tp]
        if error is not None:
            if time.monotonic() + backoff_s >= deadline_s:
                raise error
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, connection.settings.retry_backoff_max_ms / 1000)
        elif left and time.monotonic() >= deadline_s:
            raise RequestTimeout(
                f"no offsets of {next(iter(left))} were found within {timeout_s:.3g} s. Retry"
            )
    return answers


def _ask(
    connection: Connection, queries: Mapping[TopicPartition, int], deadline_s: float
) -> dict[TopicPartition, FoundOffset]:
    """One round: a request for each lane."""
    lanes: dict[int, dict[int, TopicPartition]] = {}
    for tp, place in places(connection, queries, max(deadline_s - time.monotonic(), 0.001)).items():
        lanes.setdefault(place.lane, {})[place.partition] = tp
    rows: dict[TopicPartition, FoundOffset] = {}
    for some in lanes.values():
        request = ListOffsetsRequest([OffsetQuery(partition, queries[tp]) for partition, tp in some.items()])
        reply = connection.call(
            Api.LIST_OFFSETS,
            request,
            ListOffsetsReply,
            partition=next(iter(some)),
            timeout_s=max(deadline_s - time.monotonic(), 0.001),
            on_retry=not_when_stale,
        )
        rows.update((some[row.partition], row) for row in reply.found if row.partition in some)
    return rows


def not_when_stale(error: RinglogError) -> None:
    """The same question would get the same answer: look up first who can answer it."""
    if isinstance(error, StaleMetadata):
        raise error
