"""Reads a range from the brokers themselves: whole batches, and nothing skipped in silence."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ringlog.client.consumer import Consumer
from ringlog.client.polling import FetchedBatches
from ringlog.errors import OffsetOutOfRange, RequestTimeout
from ringlog.limits import MIB
from spark_bridge.gaps import Gap, GapPolicy, below_start
from spark_bridge.options import PATIENCE_MS
from spark_bridge.patience import patiently
from spark_bridge.ranges import OffsetRange

_POLL_MS = 500
FETCH_BYTES = 4 * MIB


def read_direct(
    bootstrap: str, part: OffsetRange, gaps: GapPolicy, patience_s: float = PATIENCE_MS / 1000
) -> Iterator[FetchedBatches]:
    """The batches of a range in order. Offsets that are gone are reported to `gaps`, which may raise. When nothing was
    heard of the node for as long as the patience, the task fails, and Spark runs it again elsewhere."""
    with Consumer(
        bootstrap=bootstrap,
        auto_offset_reset="error",
        max_partition_fetch_bytes=FETCH_BYTES,
        default_api_timeout_ms=round(patience_s * 1000),
    ) as consumer:
        where = [(part.topic, part.partition, part.start)]
        patiently(lambda _: consumer.assign(where), patience_s)
        heard_s = time.monotonic()
        while part.offsets:
            try:
                found = consumer.poll_batches(timeout_ms=_POLL_MS)
            except OffsetOutOfRange:
                part = _behind_gap(consumer, part, gaps)
                if part.offsets:
                    consumer.seek(part.tp, part.start)
                continue
            if found is not None:
                part = part._replace(start=found.next_offset)
                yield found
                heard_s = time.monotonic()
            elif consumer.end_offsets([part.tp])[part.tp] < part.end:
                part = _behind_gap(consumer, part, gaps)
            elif time.monotonic() - heard_s > patience_s:
                raise RequestTimeout(f"{part}: nothing came for {patience_s:.0f} s. Is the node well?")


def _behind_gap(consumer: Consumer, part: OffsetRange, gaps: GapPolicy) -> OffsetRange:
    """What is left of a range when the log no longer has, or does not have, what comes next in it."""
    gap = below_start(part, consumer.beginning_offsets([part.tp])[part.tp])
    if gap is None:
        end = max(part.start, consumer.end_offsets([part.tp])[part.tp])
        gap = Gap(part._replace(start=min(end, part.end)), f"the log ends at {end}")
    gaps.meet(gap)
    return part._replace(start=gap.part.end)
