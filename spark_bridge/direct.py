"""Reads a range from the brokers themselves: whole batches, and nothing skipped in silence."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from ringlog.client.consumer import Consumer
from ringlog.client.polling import FetchedBatches
from ringlog.errors import DataLoss, OffsetOutOfRange, RequestTimeout
from ringlog.limits import MIB
from spark_bridge.ranges import OffsetRange

log = logging.getLogger(__name__)

_POLL_MS = 500
_PATIENCE_S = 120.0
"""A node that is being restarted is back long before; then the task fails, and Spark runs it again elsewhere."""
_FETCH_BYTES = 4 * MIB


def read_direct(bootstrap: str, part: OffsetRange, *, fail_on_data_loss: bool) -> Iterator[FetchedBatches]:
    """The batches of a range in order; DataLoss, or a line in the log, for offsets that are gone."""
    with Consumer(
        bootstrap=bootstrap,
        auto_offset_reset="error",
        max_partition_fetch_bytes=_FETCH_BYTES,
    ) as consumer:
        position = part.start
        consumer.assign([(part.topic, part.partition, position)])
        heard_s = time.monotonic()
        while position < part.end:
            try:
                found = consumer.poll_batches(timeout_ms=_POLL_MS)
            except OffsetOutOfRange:
                position = _behind_gap(consumer, part, position, fail_on_data_loss)
                if position < part.end:
                    consumer.seek(part.tp, position)
                continue
            if found is not None:
                yield found
                position = found.next_offset
                heard_s = time.monotonic()
            elif consumer.end_offsets([part.tp])[part.tp] < part.end:
                position = _behind_gap(consumer, part, position, fail_on_data_loss)
            elif time.monotonic() - heard_s > _PATIENCE_S:
                raise RequestTimeout(
                    f"{part}: nothing came from offset {position} on within {_PATIENCE_S:.0f} s. Is the node well?"
                )


def _behind_gap(consumer: Consumer, part: OffsetRange, position: int, fail_on_data_loss: bool) -> int:
    """Where to go on when the log no longer has, or does not have, what was asked for."""
    first = consumer.beginning_offsets([part.tp])[part.tp]
    behind = min(first, part.end) if first > position else part.end
    report_gap(OffsetRange(part.topic, part.partition, position, behind), first, fail_on_data_loss)
    return behind


def report_gap(gap: OffsetRange, log_start_offset: int, fail_on_data_loss: bool) -> None:
    """Offsets of a query are not there: DataLoss, or a warning that names each of them."""
    why = (
        f"the log begins at {log_start_offset} by now"
        if log_start_offset > gap.start
        else "the log ends before them: was the topic made anew?"
    )
    if fail_on_data_loss:
        raise DataLoss(
            f"{gap.offsets} offsets of {gap} cannot be read: {why}. Let retention keep more, or go on without "
            "them with option failOnDataLoss=false"
        )
    log.warning("%d offsets of %s are skipped, since failOnDataLoss=false: %s", gap.offsets, gap, why)
