"""Three shards with real logs, and a device that does not give a sealed segment any more: it is mended from the others,
as if it had rotted, and tried again where nobody else has it."""

from __future__ import annotations

import errno

import pytest

from ringlog.limits import UNREADABLE_MS, UNREADABLE_WITHIN_MS
from ringlog.log import reading
from ringlog.net.wire_errors import NUMBERS
from tests.support.fake_disk import FakeDisk
from tests.support.replica_calls import acked, produce, read
from tests.support.shard_cluster import ShardCluster
from tests.unit.shard.test_holes import (
    VALUES,
    filled,
    heal,
    leave_alone,
    log,
    must_be_whole,
    path_of,
    values_at,
)

REFUSED = NUMBERS["PARTITION_FENCED"]


def break_segment(cluster: ShardCluster, node: int, base_offset: int) -> None:
    cluster.disks[node].faults.unreadable.add(path_of(cluster, node, base_offset))


def pass_time(cluster: ShardCluster, node: int, ms: int) -> None:
    cluster.worlds[node].at(ms)


@pytest.mark.parametrize("node", [1, 3], ids=["leader", "follower"])
def test_a_segment_that_stays_unreadable_is_mended_from_the_others(node):
    cluster = filled()
    break_segment(cluster, node, 3)
    follows = node != 1
    assert read(cluster, node, 4, follower=follows).error == REFUSED
    assert log(cluster, node).hole_offset is None, "that may have been all"
    pass_time(cluster, node, UNREADABLE_MS)
    read(cluster, node, 4, follower=follows)
    assert log(cluster, node).hole_offset == 3
    assert read(cluster, node, 4, follower=follows).error == NUMBERS["NOT_LEADER"], "others have it"
    heal(cluster)
    cluster.disks[node].faults.unreadable.clear()  # the name is that of another file now
    must_be_whole(cluster)


def test_errors_within_a_moment_are_one_and_make_no_hole():
    cluster = filled()
    break_segment(cluster, 1, 3)
    for ms in (0, 0, UNREADABLE_MS - 1):
        pass_time(cluster, 1, ms)
        assert read(cluster, 1, 4).error == REFUSED
    assert log(cluster, 1).hole_offset is None


def test_an_error_in_each_of_two_segments_makes_no_hole():
    cluster = filled()
    for offset in (3, 6):
        break_segment(cluster, 1, offset)
        assert read(cluster, 1, offset).error == REFUSED
        pass_time(cluster, 1, UNREADABLE_MS)
    assert log(cluster, 1).hole_offset is None


def test_an_error_that_says_nothing_of_the_device_makes_no_hole(monkeypatch):
    """Such as too many open files, which pass."""
    monkeypatch.setattr(reading, "MEDIUM_ERRORS", frozenset({errno.EUCLEAN}))
    cluster = filled()
    break_segment(cluster, 1, 3)
    for _ in range(3):
        assert read(cluster, 1, 4).error == REFUSED
        pass_time(cluster, 1, UNREADABLE_MS)
    assert log(cluster, 1).hole_offset is None


def test_a_follower_that_needs_what_its_leader_cannot_read_gets_it_from_another_one():
    cluster = filled()
    break_segment(cluster, 1, 3)
    cluster.disks[3] = FakeDisk(seed=13)
    cluster.relieve(3)
    cluster.start(3)
    for _ in range(4):
        cluster.run(4, after_ms=UNREADABLE_MS // 8)
        assert cluster.record.leader == 1
    heal(cluster)
    heal(cluster)
    cluster.disks[1].faults.unreadable.clear()
    assert cluster.record.leader == 2
    must_be_whole(cluster)


def test_an_error_that_passes_makes_no_hole():
    cluster = filled()
    break_segment(cluster, 1, 3)
    read(cluster, 1, 4)
    cluster.disks[1].faults.unreadable.clear()
    pass_time(cluster, 1, UNREADABLE_MS)
    assert values_at(cluster, 3) == VALUES[3:6]
    pass_time(cluster, 1, UNREADABLE_WITHIN_MS)
    break_segment(cluster, 1, 3)
    read(cluster, 1, 4)
    assert log(cluster, 1).hole_offset is None, "another error, a minute later, is the first of its own"


def test_the_last_in_sync_replica_refuses_nothing_for_good():
    cluster = filled(min_insync=1)
    leave_alone(cluster)
    break_segment(cluster, 1, 3)
    for _ in range(3):
        assert read(cluster, 1, 4).error == REFUSED
        pass_time(cluster, 1, UNREADABLE_MS)
    assert log(cluster, 1).hole_offset is None
    cluster.disks[1].faults.unreadable.clear()
    assert values_at(cluster, 3) == VALUES[3:6], "its device recovered"


def test_a_second_segment_has_its_turn_after_the_first():
    cluster = filled()
    break_segment(cluster, 1, 0)
    break_segment(cluster, 1, 6)
    for _ in range(2):
        read(cluster, 1, 7)
        read(cluster, 1, 1)
        pass_time(cluster, 1, UNREADABLE_MS)
    assert log(cluster, 1).hole_offset == 6
    for _ in range(2):
        read(cluster, 1, 1)
        pass_time(cluster, 1, UNREADABLE_MS)
    assert log(cluster, 1).hole_offset == 0
    heal(cluster)
    cluster.disks[1].faults.unreadable.clear()
    must_be_whole(cluster)
    produce(cluster, cluster.record.leader, b"after")
    cluster.run()
    assert acked(cluster, cluster.record.leader)[-1] == 12
