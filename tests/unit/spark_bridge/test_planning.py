"""How offsets are shared out: exact sums, nobody starved, ranges cut without loss or overlap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringlog.limits import MIB
from ringlog.model import TopicPartition
from spark_bridge.planning import SplitPoints, divided, limited, tasks_of
from spark_bridge.ranges import OffsetRange

TPS = [TopicPartition("t", n) for n in range(5)]
sizes = st.lists(st.integers(0, 10_000), min_size=1, max_size=5)


@given(sizes, st.integers(1, 20_000))
def test_a_limited_batch_takes_exactly_what_it_may(sizes, most):
    start = {TPS[i]: 100 * i for i in range(len(sizes))}
    latest = {TPS[i]: 100 * i + size for i, size in enumerate(sizes)}
    end = limited(start, latest, most)
    taken = {tp: end[tp] - start[tp] for tp in end}
    assert sum(taken.values()) == min(most, sum(sizes))
    assert all(0 <= taken[tp] <= latest[tp] - start[tp] for tp in taken)


@given(sizes)
def test_repeated_limits_come_to_the_end(sizes):
    at = dict.fromkeys(TPS[: len(sizes)], 0)
    latest = {TPS[i]: size for i, size in enumerate(sizes)}
    for _ in range(sum(sizes)):
        if at == latest:
            break
        at = limited(at, latest, max(1, sum(sizes) // 7))
    assert at == latest


@given(st.lists(st.integers(1, 10_000_000), min_size=1, max_size=5), st.integers(1, 20))
def test_no_partition_is_passed_over_while_others_have_more(backlogs, most):
    """Logs grow as fast as they are read: each partition is in every micro-batch, or has its turn when not even one
    record of each fits."""
    tps = TPS[: len(backlogs)]
    at = dict.fromkeys(tps, 0)
    turns = -(-len(tps) // most)
    for _ in range(3):
        before = at
        for _ in range(turns):
            at = limited(at, {tp: at[tp] + backlog for tp, backlog in zip(tps, backlogs, strict=True)}, most)
        assert all(at[tp] > before[tp] for tp in tps)


def test_a_batch_never_goes_back():
    assert limited({TPS[0]: 50}, {TPS[0]: 20}, None) == {TPS[0]: 50}


@given(
    st.integers(0, 1000),
    st.integers(1, 1000),
    st.sets(st.integers(0, 2000), max_size=30),
    st.integers(1, 40),
)
def test_pieces_are_the_range_again(start, size, points, pieces):
    part = OffsetRange("t", 0, start, start + size)
    found = divided(part, sorted(points), pieces)
    assert len(found) == min(pieces, size)
    assert [one.start for one in found] + [part.end] == [part.start] + [one.end for one in found]
    assert all(one.offsets > 0 for one in found)
    inside = [at for at in points if part.start < at < part.end]
    if len(inside) >= len(found) - 1:
        assert all(one.start in inside for one in found[1:]), "cut where batches begin"


def test_a_range_of_many_bytes_becomes_several_tasks():
    part = OffsetRange("t", 0, 0, 1000)
    points = SplitPoints(list(range(10, 1000, 10)), MIB)
    assert len(tasks_of([part], {part: points}, None, task_bytes=10 * MIB)) == 10
    assert tasks_of([part], {part: points}, None, task_bytes=100 * MIB) == [part]


def test_at_least_so_many_tasks_as_were_asked_for():
    parts = [OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)]
    tasks = tasks_of(parts, {}, 10)
    assert len(tasks) == 10
    assert sum(one.offsets for one in tasks) == 1000
    assert tasks_of(parts, {}, 2) == parts


def test_a_range_is_not_cut_finer_than_its_offsets():
    part = OffsetRange("t", 0, 5, 8)
    assert len(tasks_of([part], {}, 50)) == 3
