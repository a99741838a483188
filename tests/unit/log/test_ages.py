"""When records came, as a log that was opened anew tells it: perhaps too early, never too late."""

from __future__ import annotations

from bisect import bisect_right

import pytest

from ringlog.limits import MIB
from ringlog.log.ages import history
from tests.support.logs import LogWorld

STEP_MS = 60_000
APPENDS = 12
BATCH = bytes(300_000)
"""Four of them are more than a segment of 1 MiB."""


def filled(timestamps) -> tuple[LogWorld, list[int]]:
    """A log of several segments, a batch a minute, and when each came."""
    world, came_ms = LogWorld(), []
    for number in range(APPENDS):
        world.append(BATCH, timestamp=timestamps(world.now_ms, number))
        world.settle()
        came_ms.append(world.now_ms)
        world.now_ms += STEP_MS
    assert len(world.log.segments) > 2
    return world, came_ms


@pytest.mark.parametrize(
    "timestamps",
    [
        lambda now_ms, number: now_ms,
        lambda now_ms, number: 0,
        lambda now_ms, number: now_ms - number % 3 * 100_000,
    ],
    ids=["of now", "none", "out of order"],
)
@pytest.mark.parametrize("how", ["reopened", "old ones deleted", "same process"])
def test_no_record_is_told_to_be_younger_than_it_is(timestamps, how):
    world, came_ms = filled(timestamps)
    start = 0
    if how != "same process":
        world.close()
        world = world.reopened()
    if how == "old ones deleted":
        start = world.log.segments[1].base_offset + 1
        world.log.log_start_offset = start
    marks = history(world.log, world.now_ms)
    assert marks == sorted(marks)
    for offset in range(start, APPENDS):
        mark = max(bisect_right(marks, offset, key=lambda mark: mark[0]) - 1, 0)
        assert 0 < marks[mark][1] <= came_ms[offset], f"offset {offset}"


def test_the_oldest_segment_is_as_old_as_its_first_record():
    world, came_ms = filled(lambda now_ms, number: now_ms)
    world.close()
    world = world.reopened()
    assert world.log.segments[0].position <= MIB
    assert history(world.log, world.now_ms)[0] == (0, came_ms[0])
