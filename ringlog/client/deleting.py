"""Asks a node to delete the oldest records of partitions, and waits until that is durable."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ringlog.client.connection import Connection
from ringlog.client.offsets import not_when_stale, places
from ringlog.errors import RinglogError, StaleMetadata
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import DeletedRecords, DeleteRecordsReply, DeleteRecordsRequest, PartitionStart
from ringlog.net.wire_errors import error_by_number


def delete_records(
    connection: Connection, starts: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, int]:
    """Let the logs of partitions begin at these offsets; returns where they begin now. Asking twice does no harm, so
    what may succeed later is retried until the time is up."""
    deadline_s = time.monotonic() + timeout_s
    begun: dict[TopicPartition, int] = {}
    left = dict(starts)
    backoff_s = connection.settings.retry_backoff_ms / 1000
    while left:
        error: RinglogError | None = None
        rows: dict[TopicPartition, DeletedRecords] = {}
        try:
            rows = _ask(connection, left, deadline_s)
        except StaleMetadata as stale:
            error = stale
        for tp, row in rows.items():
            if not row.error:
                begun[tp] = row.log_start_offset
                del left[tp]
                continue
            error = error_by_number(row.error, f"{tp}: no records below {starts[tp]} were deleted")
            if not error.retriable:
                raise error
        if error is not None:
            if time.monotonic() + backoff_s >= deadline_s:
                raise error
            for tp in left:
                connection.forget(tp.topic)
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, connection.settings.retry_backoff_max_ms / 1000)
    return begun


def _ask(
    connection: Connection, starts: Mapping[TopicPartition, int], deadline_s: float
) -> dict[TopicPartition, DeletedRecords]:
    """One round: a request for each lane."""
    lanes: dict[int, dict[int, TopicPartition]] = {}
    for tp, place in places(connection, starts, max(deadline_s - time.monotonic(), 0.001)).items():
        lanes.setdefault(place.lane, {})[place.partition] = tp
    rows: dict[TopicPartition, DeletedRecords] = {}
    for some in lanes.values():
        request = DeleteRecordsRequest([PartitionStart(number, starts[tp]) for number, tp in some.items()])
        reply = connection.call(
            Api.DELETE_RECORDS,
            request,
            DeleteRecordsReply,
            partition=next(iter(some)),
            timeout_s=max(deadline_s - time.monotonic(), 0.001),
            on_retry=not_when_stale,
        )
        rows.update((some[row.partition], row) for row in reply.deleted if row.partition in some)
    return rows
