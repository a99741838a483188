"""Divides offsets: how much a micro-batch takes from each partition, and how ranges become tasks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ringlog.limits import MIB
from ringlog.model import TopicPartition
from spark_bridge.options import Offsets
from spark_bridge.ranges import OffsetRange

TASK_BYTES = 64 * MIB
"""A range with more bytes in the log is read by several tasks."""


class SplitPoints(NamedTuple):
    """Offsets in a range at which batches begin, `step_bytes` of the log apart, or more where batches are large."""

    offsets: list[int]
    step_bytes: int
    range_bytes: int = 0
    """What the whole range has in the log, about."""


NO_POINTS = SplitPoints([], 0)


def limited(start: Offsets, latest: Offsets, offsets_max: int | None) -> Offsets:
    """How far a micro-batch goes: to the latest, or so many offsets further in all. Each partition that has something
    gets one of them, and of the others its share: one that is slow does not wait until the others are read.

    >>> a, b, c = (TopicPartition("t", number) for number in range(3))
    >>> end = limited({a: 0, b: 0, c: 0}, {a: 9000, b: 1000, c: 1}, 501)
    >>> end[a], end[b], end[c]
    (449, 51, 1)
    """
    sizes = {tp: max(0, at - start.get(tp, at)) for tp, at in latest.items()}
    if offsets_max is None or sum(sizes.values()) <= offsets_max:
        return {tp: max(at, start.get(tp, at)) for tp, at in latest.items()}
    some = sorted(tp for tp, size in sizes.items() if size)
    if offsets_max < len(some):
        # They take turns. What was read so far says whose turn it is, so that a plan that is made again is the same.
        first = sum(start.get(tp, 0) for tp in latest) % len(some)
        shares = dict.fromkeys((some[first:] + some[:first])[:offsets_max], 1)
    else:
        shares = _shared({tp: sizes[tp] - 1 for tp in some}, offsets_max - len(some))
        shares = {tp: share + 1 for tp, share in shares.items()}
    return {tp: start.get(tp, at) + shares.get(tp, 0) for tp, at in latest.items()}


def _shared(sizes: Mapping[TopicPartition, int], amount: int) -> dict[TopicPartition, int]:
    """An amount that is less than all of them have, by what each has. What rounding leaves over goes to those who lost
    most by it, so that the sum is what was asked for."""
    total = sum(sizes.values())
    shares = {tp: size * amount // total for tp, size in sizes.items()}
    by_loss = sorted(sizes, key=lambda tp: (-(sizes[tp] * amount % total), tp))
    for tp in by_loss[: amount - sum(shares.values())]:
        shares[tp] += 1
    return shares


def tasks_of(
    ranges: Sequence[OffsetRange],
    points: Mapping[OffsetRange, SplitPoints],
    partitions_min: int | None,
    task_bytes: int = TASK_BYTES,
) -> list[OffsetRange]:
    """The ranges, with large ones divided, and all of them so that there are at least `partitions_min` tasks."""
    total = sum(part.offsets for part in ranges)
    tasks: list[OffsetRange] = []
    for part in ranges:
        found = points.get(part, NO_POINTS)
        nbytes = max(found.range_bytes, (len(found.offsets) + 1) * found.step_bytes)
        pieces = -(-nbytes // task_bytes) if found.offsets else 1
        if partitions_min is not None and partitions_min > len(ranges):
            pieces = max(pieces, -(-part.offsets * partitions_min // total))
        tasks += divided(part, found.offsets, pieces)
    return tasks


def divided(part: OffsetRange, points: Sequence[int], pieces: int) -> list[OffsetRange]:
    """A range in so many pieces, cut where batches begin; anywhere, when too few such places are known.

    >>> [(p.start, p.end) for p in divided(OffsetRange("t", 0, 0, 100), [10, 40, 60, 90], 2)]
    [(0, 40), (40, 100)]
    >>> [(p.start, p.end) for p in divided(OffsetRange("t", 0, 0, 100), [], 3)]
    [(0, 33), (33, 66), (66, 100)]
    """
    pieces = min(pieces, part.offsets)
    inside = [at for at in points if part.start < at < part.end]
    if len(inside) >= pieces - 1:
        cuts = [inside[i * (len(inside) + 1) // pieces - 1] for i in range(1, pieces)]
    else:
        cuts = [part.start + i * part.offsets // pieces for i in range(1, pieces)]
    edges = [part.start, *cuts, part.end]
    return [part._replace(start=start, end=end) for start, end in pairwise(edges)]
