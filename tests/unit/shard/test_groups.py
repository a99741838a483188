"""A shard that keeps groups: replies wait for the disk, state comes back from the log, deaths are noticed."""

from __future__ import annotations

import random

import pytest

from ringlog.controller.records import Partition
from ringlog.coordination.coordinator import EXPIRY_CHECK_MS
from ringlog.errors import PartitionBusy
from ringlog.limits import OFFSETS_EXPIRY_MS, OFFSETS_PARTITIONS
from ringlog.net.framing import Api
from ringlog.net.group_messages import (
    JOIN,
    LEAVE,
    OFFSETS_TOPIC,
    GroupDeleteReply,
    GroupDeleteRequest,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    GroupListReply,
    GroupListRequest,
    OffsetCommitReply,
    OffsetCommitRequest,
    OffsetFetchReply,
    OffsetFetchRequest,
    OffsetToCommit,
    TopicPartitions,
)
from ringlog.net.messages import decode_body
from ringlog.records.partitioner import partition_for
from ringlog.shard import groups
from ringlog.shard.commands import NodeApi, pack_u64
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults
from tests.support.shard_world import ShardWorld

HOME = 100 + partition_for(b"g", OFFSETS_PARTITIONS)
"""The id of the partition that keeps group g."""


class GroupShard(ShardWorld):
    def __init__(self, disk: FakeDisk | None = None) -> None:
        super().__init__(disk=disk)
        self.create(1, 2, name="events")
        self.create(*range(100, 100 + OFFSETS_PARTITIONS), topic_id=2, name=OFFSETS_TOPIC)
        for _ in range(100):
            self.core.hosting.work(self.now_ms)
            self.turn()

    def turn(self) -> None:
        self.core.groups.work(self.now_ms)
        self.run()

    def turns(self) -> None:
        for _ in range(20):
            self.turn()

    def ask(self, api, body, kind, **more):
        """The answer, when the disk has done its work."""
        correlation = self.send(api, body, partition=HOME, **more)
        self.turns()
        (reply,) = [one for one in self.net.take() if one.correlation == correlation]
        assert reply.error is None, reply.error
        return decode_body(reply.body, kind)

    def join(self, member="m", **more) -> GroupHeartbeatReply:
        request = GroupHeartbeatRequest("g", member, JOIN, [], 0, ["events"], **more)
        return self.ask(Api.GROUP_HEARTBEAT, request, GroupHeartbeatReply)

    def committed(self):
        reply = self.ask(Api.OFFSET_FETCH, OffsetFetchRequest("g"), OffsetFetchReply)
        return {row.partition: row.offset for row in reply.offsets}


@pytest.fixture
def shard():
    return GroupShard()


def commit(offset: int, sequence: int = 1) -> OffsetCommitRequest:
    return OffsetCommitRequest("g", "tool", LEAVE, sequence, [OffsetToCommit("events", 0, offset)])


def test_a_member_gets_the_partitions_of_its_topic(shard):
    assert shard.join().assigned == [TopicPartitions("events", [0, 1])]


def test_a_commit_is_answered_when_it_is_durable_and_not_before(shard):
    shard.send(Api.OFFSET_COMMIT, commit(5), partition=HOME)
    assert shard.net.take() == []
    shard.core.groups.work(shard.now_ms)
    assert shard.net.take() == [], "it is appended, and not on the disk"
    shard.turns()
    (reply,) = shard.net.take()
    assert decode_body(reply.body, OffsetCommitReply).errors == [0]
    log = shard.log(HOME)
    assert log.readable_offset == log.next_offset == 1


def test_commits_of_one_cycle_are_one_batch(shard):
    for sequence in range(10):
        shard.send(Api.OFFSET_COMMIT, commit(sequence, sequence), partition=HOME)
    shard.turns()
    assert len(shard.net.take()) == 10
    assert shard.log(HOME).next_offset == 10


def test_a_group_is_read_from_the_log_by_the_next_incarnation(shard):
    first = shard.join()
    request = OffsetCommitRequest("g", "m", first.member_epoch, 1, [OffsetToCommit("events", 1, 9)])
    shard.ask(Api.OFFSET_COMMIT, request, OffsetCommitReply)
    again = GroupShard(shard.disk.crash(random.Random(1), survival=0.0))
    assert again.committed() == {1: 9}
    request = GroupHeartbeatRequest("g", "m", first.member_epoch, first.assigned)
    assert again.ask(Api.GROUP_HEARTBEAT, request, GroupHeartbeatReply) == GroupHeartbeatReply(
        first.member_epoch
    )


def test_until_its_log_is_read_a_group_is_loading(shard):
    shard.ask(Api.OFFSET_COMMIT, commit(5), OffsetCommitReply)
    shard.core.groups._partitions[HOME].begin({})
    shard.send(Api.OFFSET_FETCH, OffsetFetchRequest("g"), partition=HOME)
    (reply,) = shard.net.take()
    assert reply.error.code == "COORDINATOR_LOADING"
    assert reply.error.retriable


def test_records_that_the_log_does_not_take_never_were(shard, monkeypatch):
    shard.ask(Api.OFFSET_COMMIT, commit(5), OffsetCommitReply)

    def refuse(*_args, **_more):
        raise PartitionBusy("too much")

    with monkeypatch.context() as patched:
        patched.setattr(shard.store, "append", refuse)
        shard.send(Api.OFFSET_COMMIT, commit(6, 2), partition=HOME)
        shard.core.groups.work(shard.now_ms)
    (reply,) = shard.net.take()
    assert reply.error.code == "PARTITION_BUSY"
    shard.turns()
    assert shard.committed() == {0: 5}


def test_a_heartbeat_waits_and_is_answered_when_partitions_come(shard):
    first = shard.join()
    request = GroupHeartbeatRequest("g", "m", first.member_epoch, first.assigned, 3000)
    shard.send(Api.GROUP_HEARTBEAT, request, partition=HOME)
    shard.turns()
    assert shard.net.take() == []
    assert shard.core.groups.next_due_ms == shard.now_ms + 3000
    shard.delta(Partition(3, 1, 2, 0))
    shard.turns()
    (reply,) = shard.net.take()
    assert decode_body(reply.body, GroupHeartbeatReply).assigned == [TopicPartitions("events", [0, 1, 2])]


def test_a_member_whose_process_died_is_gone_within_moments(shard):
    shard.join("a", session_timeout_ms=45_000)
    shard.send(NodeApi.LEFT, pack_u64(7), partition=0)
    shard.at(1_000)
    shard.turns()
    shard.send(Api.GROUP_LIST, GroupListRequest(), partition=HOME)
    (reply,) = shard.net.take()
    (group,) = decode_body(reply.body, GroupListReply).groups
    assert (group.group_id, group.state, group.members) == ("g", "empty", 0)


def test_nobody_waits_for_a_network_process_that_died(shard):
    first = shard.join()
    request = GroupHeartbeatRequest("g", "m", first.member_epoch, first.assigned, 3000)
    shard.send(Api.GROUP_HEARTBEAT, request, partition=HOME)
    shard.core.forget(shard.net)
    shard.at(5_000)
    shard.turns()
    assert shard.net.take() == []


def test_a_fenced_log_ends_its_coordinator_and_a_new_one_reads_it():
    faults = Faults()
    shard = GroupShard(FakeDisk(seed=1, faults=faults))
    first = shard.join()
    request = GroupHeartbeatRequest("g", "m", first.member_epoch, first.assigned, 3000)
    shard.send(Api.GROUP_HEARTBEAT, request, partition=HOME)
    for number in range(400):
        faults.fail("write", nth=shard.disk._kinds["write"] + number)
    offsets = [OffsetToCommit("events", 0, 3)]
    shard.send(
        Api.OFFSET_COMMIT, OffsetCommitRequest("g", "m", first.member_epoch, 1, offsets), partition=HOME
    )
    shard.turns()
    refused = shard.net.take()
    assert [reply.api_key for reply in refused] == [Api.OFFSET_COMMIT, Api.GROUP_HEARTBEAT]
    assert all(reply.error.retriable for reply in refused)
    faults._by_kind.clear()
    shard.at(500)
    shard.core.hosting.work(shard.now_ms)
    shard.turns()
    request = GroupHeartbeatRequest("g", "m", first.member_epoch, first.assigned)
    assert shard.ask(Api.GROUP_HEARTBEAT, request, GroupHeartbeatReply).member_epoch == first.member_epoch


def test_a_group_is_asked_for_where_it_is_kept(shard):
    shard.send(Api.OFFSET_FETCH, OffsetFetchRequest("g"), partition=HOME + 1)
    (reply,) = shard.net.take()
    assert reply.error.code == "INVALID_REQUEST"


def test_an_answer_that_would_not_fit_is_refused_and_not_sent(shard):
    rows = [OffsetToCommit("events", 0, 1, "m" * 4096)]
    shard.ask(Api.OFFSET_COMMIT, OffsetCommitRequest("g", "tool", LEAVE, 1, rows), OffsetCommitReply)
    many = [TopicPartitions("events", [0] * 300)]
    shard.send(Api.OFFSET_FETCH, OffsetFetchRequest("g", many), partition=HOME)
    shard.turns()
    (reply,) = shard.net.take()
    assert reply.error.code == "LIMIT_EXCEEDED"


def test_clients_do_not_write_to_the_offsets_topic(shard):
    shard.produce(b"x", partition=HOME)
    (reply,) = shard.net.take()
    assert reply.error.code == "INVALID_REQUEST"


def test_what_nobody_has_used_for_a_week_is_forgotten_by_the_shard_and_by_its_log(shard):
    shard.ask(Api.OFFSET_COMMIT, commit(5), OffsetCommitReply)
    for ms in (OFFSETS_EXPIRY_MS - EXPIRY_CHECK_MS, 2 * EXPIRY_CHECK_MS):
        assert shard.committed() == {0: 5}
        shard.at(ms)
        assert shard.core.groups.next_due_ms <= shard.now_ms, "the shard wakes up for it"
        shard.turns()
    assert shard.committed() == {}
    assert GroupShard(shard.disk.crash(random.Random(1), survival=0.0)).committed() == {}


def test_without_groups_the_desk_has_nothing_to_do():
    world = ShardWorld()
    world.create(1)
    assert world.core.groups.next_due_ms is None


WIDE = 40
"""Partitions of a topic whose offsets do not fit a batch together."""


@pytest.fixture
def wide(shard, monkeypatch):
    """A shard with a group that has committed more than a batch takes when it is forgotten."""
    monkeypatch.setattr(groups, "BATCH_BYTES_TARGET", 300)
    shard.create(*range(1000, 1000 + WIDE), topic_id=3, name="wide")
    shard.configure(topic_id=2, max_message_bytes="600")
    for partition in range(WIDE):
        request = OffsetCommitRequest("g", "tool", LEAVE, 1, [OffsetToCommit("wide", partition, 7)])
        shard.ask(Api.OFFSET_COMMIT, request, OffsetCommitReply)
    assert len(shard.committed()) == WIDE
    return shard


def offsets_after_a_crash(shard: GroupShard) -> int:
    """What the log says of the group, also of topics that are no more."""
    after = GroupShard(shard.disk.crash(random.Random(1), survival=0.0))
    group = after.core.groups._partitions[HOME].coordinator.image.groups.get("g")
    return len(group.offsets) if group is not None else 0


def test_a_group_that_fits_no_batch_is_deleted_in_several_and_answered_when_all_are_durable(wide):
    wide.send(Api.GROUP_DELETE, GroupDeleteRequest("g"), partition=HOME)
    wide.core.groups.work(wide.now_ms)
    assert wide.log(HOME).next_offset == WIDE + WIDE + 1, "every offset, and the group"
    wide.turns()
    (reply,) = wide.net.take()
    assert (reply.error, decode_body(reply.body, GroupDeleteReply).offsets) == (None, WIDE)
    assert offsets_after_a_crash(wide) == 0


def test_a_group_that_fits_no_batch_expires(wide):
    wide.at(OFFSETS_EXPIRY_MS + EXPIRY_CHECK_MS)
    wide.turns()
    assert offsets_after_a_crash(wide) == 0


def test_a_deletion_of_which_the_log_takes_a_part_is_refused_and_the_rest_is_as_the_log_says(
    wide, monkeypatch
):
    append, calls = wide.store.append, []

    def second_is_refused(*given, **more):
        calls.append(given)
        if len(calls) == 2:
            raise PartitionBusy("not now")
        return append(*given, **more)

    monkeypatch.setattr(wide.store, "append", second_is_refused)
    wide.send(Api.GROUP_DELETE, GroupDeleteRequest("g"), partition=HOME)
    wide.turns()
    (reply,) = wide.net.take()
    assert reply.error.code == "PARTITION_BUSY"
    left = wide.committed()
    assert 0 < len(left) < WIDE and len(calls) == 2
    assert offsets_after_a_crash(wide) == len(left)
    wide.send(Api.GROUP_DELETE, GroupDeleteRequest("g"), partition=HOME)
    wide.turns()
    (reply,) = wide.net.take()
    assert decode_body(reply.body, GroupDeleteReply).offsets == len(left)
