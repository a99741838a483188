"""Reads a range from the brokers themselves: whole batches, and nothing skipped in silence."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ringlog.client.consumer import Consumer
from ringlog.client.polling import FetchedBatches
from ringlog.errors import OffsetOutOfRange, RequestTimeout, UnknownTopic
from ringlog.limits import MIB
from spark_bridge.gaps import Gap, GapPolicy, below_start, gone, made_anew
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
        heard_s = time.monotonic()
        try:
            patiently(lambda _: consumer.assign([(*part.tp, part.start)]), patience_s)
            while part.offsets:
                found = _next(consumer, part)
                if found is not None:
                    part = part._replace(start=found.next_offset)
                    yield found
                    heard_s = time.monotonic()
                    continue
                gap = _gap_in(consumer, part)
                if gap is not None:
                    gaps.meet(gap)
                    part = part.without(gap.part)
                    if part.offsets:
                        consumer.seek(part.tp, part.start)
                elif time.monotonic() - heard_s > patience_s:
                    raise RequestTimeout(f"{part}: nothing came for {patience_s:.0f} s. Is the node well?")
        except UnknownTopic:
            gaps.meet(gone(part))


def _next(consumer: Consumer, part: OffsetRange) -> FetchedBatches | None:
    """The next batches of a range; None when none came, or only those of another topic of the same name."""
    try:
        found = consumer.poll_batches(timeout_ms=_POLL_MS)
    except OffsetOutOfRange:
        consumer.seek(part.tp, part.start)  # if nothing is missing after all, it is asked for again
        return None
    return found if found is None or part.is_of(found.topic_id) else None


def _gap_in(consumer: Consumer, part: OffsetRange) -> Gap | None:
    """What the log lacks of a range: all of it, its front or its end."""
    if not part.is_of(consumer.topic_id(part.topic)):
        return made_anew(part)
    front = below_start(part, consumer.beginning_offsets([part.tp])[part.tp])
    if front is not None:
        return front
    end = consumer.end_offsets([part.tp])[part.tp]
    return (
        Gap(part._replace(start=max(part.start, end)), f"the log ends at {end}") if end < part.end else None
    )
