"""Asks a node where a range of a partition may be split, for those who read it in parallel."""

from __future__ import annotations

import time
from typing import NamedTuple

from ringlog.client.connection import Connection
from ringlog.client.metadata import LOOK_AGAIN
from ringlog.client.rounds import not_when_stale, places
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import SplitPointsReply, SplitPointsRequest, SplitQuery
from ringlog.net.wire_errors import error_by_number


class SplitPoints(NamedTuple):
    """Offsets inside of a range at which batches begin."""

    offsets: list[int]
    step_bytes: int
    """What lies between two of them at least: what was asked for, or more where there would be too many."""


def split_points(
    connection: Connection, tp: TopicPartition, start: int, end: int, step_bytes: int, timeout_s: float
) -> SplitPoints:
    """Where a range may be split. What may succeed later is retried until the time is up."""
    deadline_s = time.monotonic() + timeout_s
    backoff_s = connection.settings.retry_backoff_ms / 1000
    while True:
        left_s = max(deadline_s - time.monotonic(), 0.001)
        number = places(connection, [tp], left_s)[tp].partition
        try:
            reply = connection.call(
                Api.SPLIT_POINTS,
                SplitPointsRequest([SplitQuery(number, start, end, step_bytes)]),
                SplitPointsReply,
                partition=number,
                timeout_s=left_s,
                on_retry=not_when_stale,
            )
            (row,) = reply.found
            if not row.error:
                return SplitPoints(row.offsets, row.step_bytes)
            error = error_by_number(row.error, f"{tp}: where [{start}, {end}) may be split was not found")
        except LOOK_AGAIN as stale:
            error = stale
        if not error.retriable or time.monotonic() + backoff_s >= deadline_s:
            raise error
        connection.forget(tp.topic)
        time.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, connection.settings.retry_backoff_max_ms / 1000)
