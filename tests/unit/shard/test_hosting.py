"""Hosting: a shard opens, reconfigures, reopens and removes what the metadata says, and nothing else."""

from __future__ import annotations

import errno
import random
import time

import pytest

from ringlog.controller.records import Identity, NextIds, Partition, Topic, TopicConfig, TopicRemoved
from ringlog.limits import RETENTION_MS_DEFAULT
from ringlog.net.framing import Api
from ringlog.net.messages import (
    EARLIEST,
    LATEST,
    DescribePartitionsReply,
    DescribePartitionsRequest,
    ListOffsetsReply,
    ListOffsetsRequest,
    OffsetQuery,
    decode_body,
)
from ringlog.net.wire_errors import NUMBERS
from ringlog.shard.hosting import WORK_SLICE_S
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults
from tests.support.shard_world import ShardWorld


def test_only_partitions_of_this_shard_are_opened():
    world = ShardWorld()
    world.delta(Topic(1, "events", {}), Partition(1, 1, 0, 0), Partition(2, 1, 1, 5))
    world.core.hosting.work(world.now_ms)
    assert list(world.core.hosting.hosted) == [1]


def test_until_it_is_open_a_partition_is_refused_retriably():
    world = ShardWorld()
    world.delta(Topic(1, "events", {}), Partition(1, 1, 0, 0))
    world.produce(b"a")
    (reply,) = world.net.take()
    assert (reply.error.code, reply.error.retriable) == ("PARTITION_BUSY", True)


def test_a_shard_is_settled_when_all_its_partitions_are_open():
    world = ShardWorld()
    world.delta(Topic(1, "events", {}), Partition(1, 1, 0, 0))
    assert not world.core.hosting.settled
    world.core.hosting.work(world.now_ms)
    assert world.core.hosting.settled


def test_a_deleted_topic_is_gone_from_the_disk():
    world = ShardWorld()
    world.create(1)
    world.fill(b"a")
    world.delta(TopicRemoved(1))
    world.settle()
    assert world.disk.list_dirs("/data") == []


def test_a_shard_is_not_settled_before_what_is_gone_has_left_its_directory():
    world = ShardWorld()
    world.create(1)
    world.disk.hold_all()
    world.produce(b"a")
    world.run()
    world.delta(TopicRemoved(1))
    world.settle()
    assert not world.core.hosting.settled, "another shard would open the old directory"
    world.disk.release_all()
    world.settle()
    assert world.core.hosting.settled
    assert "events-0" not in world.disk.list_dirs("/data")


def test_what_waits_when_its_topic_is_deleted_is_refused_retriably():
    world = ShardWorld()
    world.create(1)
    world.disk.hold_all()
    world.produce(b"a")
    world.delta(TopicRemoved(1))
    (reply,) = world.net.take()
    assert (reply.error.code, reply.error.retriable) == ("STALE_METADATA", True)


def test_a_topic_made_anew_under_its_old_name_begins_empty():
    world = ShardWorld()
    world.create(1)
    world.fill(b"old")
    world.delta(TopicRemoved(1))
    world.create(2, topic_id=2)
    world.fill(b"new", partition=2)
    assert (world.log(2).log_start_offset, world.log(2).readable_offset) == (0, 1)


@pytest.mark.parametrize(
    ("identity", "next_ids", "is_left"),
    [
        (Identity("ours", 0), NextIds(9, 9), False),
        (Identity("another", 0), NextIds(9, 9), True),
        (Identity("ours", 0), NextIds(1, 1), True),
    ],
)
def test_what_was_deleted_while_its_shard_was_dead_is_swept_and_only_that(identity, next_ids, is_left):
    before = ShardWorld()
    before.delta(Identity("ours", 0))
    before.create(1, topic_id=1, name="kept")
    before.create(2, topic_id=2, name="gone")
    before.fill(b"record", partition=2)
    before.disk.make_dir("/data/no-owner-0")
    after = ShardWorld(disk=before.disk.crash(random.Random(1), survival=1.0))
    after.delta(identity, Topic(1, "kept", {}), Partition(1, 1, 0, 0), next_ids, full=True)
    after.core.hosting.work(after.now_ms)
    after.settle()
    found = set(after.disk.list_dirs("/data"))
    assert ("gone-0" in found) is is_left
    assert {"kept-0", "no-owner-0"} <= found
    assert not any(name.endswith("-delete") for name in found)


def test_a_partition_deleted_before_it_was_opened_is_never_opened():
    world = ShardWorld()
    world.delta(Topic(1, "events", {}), Partition(1, 1, 0, 0))
    world.delta(TopicRemoved(1))
    world.core.hosting.work(world.now_ms)
    world.settle()
    assert (world.core.hosting.hosted, world.disk.list_dirs("/data")) == ({}, [])


def test_other_settings_reach_an_open_log():
    world = ShardWorld()
    world.create(1)
    world.configure(flush="os")
    assert world.log().settings.flush.on_ack is False


def slow_to_reconfigure(world: ShardWorld) -> None:
    """To give a log other settings takes a slice of time."""
    reconfigure = world.store.reconfigure

    def slowly(*args, **kwargs):
        time.sleep(WORK_SLICE_S)
        reconfigure(*args, **kwargs)

    world.store.reconfigure = slowly


def flushed_on_ack(world: ShardWorld) -> list[bool]:
    return [hosted.log.settings.flush.on_ack for hosted in world.core.hosting.hosted.values()]


def test_others_are_served_while_many_logs_get_other_settings():
    world = ShardWorld()
    world.create(1, 2, 3)
    slow_to_reconfigure(world)
    world.delta(TopicConfig(1, {"flush": "os"}))
    hosting = world.core.hosting
    seen = [flushed_on_ack(world)]
    while hosting.has_work:
        assert not hosting.settled, "some have the old settings"
        hosting.work(world.now_ms)
        world.produce(b"a", partition=3)
        world.settle()
        (reply,) = world.net.take()
        assert reply.error is None
        seen.append(flushed_on_ack(world))
    assert seen == [[True] * 3, [False, True, True], [False, False, True], [False] * 3]
    assert hosting.settled


def test_settings_that_change_again_before_a_log_has_them_are_skipped():
    world = ShardWorld()
    world.create(1, 2)
    slow_to_reconfigure(world)
    world.delta(TopicConfig(1, {"flush": "os"}))
    world.core.hosting.work(world.now_ms)
    world.delta(TopicConfig(1, {}))
    world.work()
    assert flushed_on_ack(world) == [True, True]


def test_a_topic_deleted_before_its_logs_have_their_settings_is_gone():
    world = ShardWorld()
    world.create(1, 2)
    world.delta(TopicConfig(1, {"flush": "os"}))
    world.delta(TopicRemoved(1))
    world.work()
    world.settle()
    assert (world.core.hosting.settled, world.disk.list_dirs("/data")) == (True, [])


def test_defaults_of_the_node_hold_where_a_topic_says_nothing_and_never_for_the_nodes_own():
    world = ShardWorld(topic_defaults={"retention.ms": "5000", "flush": "os"})
    world.create(1, topic_id=1, name="plain")
    world.create(2, topic_id=2, name="own", retention_ms="7000")
    world.create(3, topic_id=3, name="__internal")
    settings = [world.log(partition).settings for partition in (1, 2, 3)]
    assert [one.retention_ms for one in settings] == [5_000, 7_000, RETENTION_MS_DEFAULT]
    assert [one.flush.on_ack for one in settings] == [False, False, True]


def test_settings_that_changed_while_a_log_was_fenced_hold_when_it_is_open_again():
    faults = Faults()
    world = ShardWorld(disk=FakeDisk(seed=1, faults=faults))
    world.create(1)
    for number in range(400):
        faults.fail("write", nth=world.disk._kinds["write"] + number)
    world.produce(b"a")
    world.settle()
    assert 1 not in world.core.hosting.hosted
    faults._by_kind.clear()
    world.configure(flush="os")
    world.at(1000)
    world.core.hosting.work(world.now_ms)
    assert world.log().settings.flush.on_ack is False


def test_a_partition_that_cannot_be_opened_is_tried_again():
    faults = Faults()
    world = ShardWorld(disk=FakeDisk(seed=1, faults=faults))
    faults.fail("flush_dir", nth=world.disk._kinds["flush_dir"], errno=errno.EIO)
    world.create(1)
    assert (world.core.hosting.hosted, world.core.hosting.settled) == ({}, True)
    due_ms = world.core.hosting.next_retry_ms
    assert due_ms is not None
    world.at(due_ms - world.now_ms)
    world.core.hosting.work(world.now_ms)
    assert list(world.core.hosting.hosted) == [1]


@pytest.mark.parametrize("kind", ["flush_dir", "make_dir", "write"])
def test_of_partitions_that_are_made_together_only_the_one_that_fails_is_tried_again(kind):
    faults = Faults()
    world = ShardWorld(disk=FakeDisk(seed=1, faults=faults))
    faults.fail(kind, nth=world.disk._kinds[kind] + 2, errno=errno.EIO)
    world.delta(Topic(1, "events", {}), *(Partition(number, 1, number - 1, 0) for number in range(1, 6)))
    world.core.hosting.work(world.now_ms)
    hosting = world.core.hosting
    assert len(hosting.hosted) == 4
    (failed,) = hosting.closed
    world.at(hosting.next_retry_ms - world.now_ms)
    hosting.work(world.now_ms)
    assert sorted(hosting.hosted) == [1, 2, 3, 4, 5], f"{failed} is open, too"


def test_a_directory_that_cannot_be_set_aside_keeps_one_partition_closed_and_not_the_shard():
    faults = Faults()
    world = ShardWorld(disk=FakeDisk(seed=1, faults=faults))
    world.create(9, topic_id=9, name="other")
    world.create(1)
    world.fill(b"a")
    for number in range(400):
        faults.fail("rename", nth=world.disk._kinds["rename"] + number)
    world.delta(TopicRemoved(1))
    world.settle()
    world.delta(Topic(2, "events", {}), Partition(2, 2, 0, 0))
    world.core.hosting.work(world.now_ms)
    assert world.core.hosting.closed == [2] and 9 in world.core.hosting.hosted


def test_a_topic_of_many_partitions_waits_for_the_disk_as_often_as_one_of_few():
    def waits(partitions: int) -> int:
        world = ShardWorld()
        submitted = []
        submit = world.disk.submit
        world.disk.submit = lambda: (submitted.append(len(world.disk._queued)), submit())
        world.delta(Topic(1, "events", {}), *(Partition(n + 1, 1, n, 0) for n in range(partitions)))
        world.core.hosting.work(world.now_ms)
        assert len(world.core.hosting.hosted) == partitions
        return sum(count > 0 for count in submitted)

    assert waits(60) == waits(2)


def test_a_full_delta_removes_nothing_that_it_still_has():
    world = ShardWorld()
    world.create(1)
    world.fill(b"a")
    log = world.log()
    world.delta(Topic(1, "events", {}), Partition(1, 1, 0, 0), full=True)
    assert world.log() is log


def offsets(world: ShardWorld, *queries: tuple[int, int]) -> list[tuple[int, int, int]]:
    world.send(Api.LIST_OFFSETS, ListOffsetsRequest([OffsetQuery(*query) for query in queries]))
    world.settle()
    (reply,) = world.net.take()
    found = decode_body(reply.body, ListOffsetsReply).found
    return [(row.partition, row.error, row.offset) for row in found]


def test_offsets_are_answered_in_the_order_of_the_questions():
    world = ShardWorld()
    world.create(1, 2)
    for at in (0, 1000, 1000):
        world.at(at)
        world.fill(b"x")
    asked = ((1, LATEST), (2, LATEST), (1, EARLIEST), (1, world.now_ms - 1000), (1, world.now_ms + 1))
    assert offsets(world, *asked) == [(1, 0, 3), (2, 0, 0), (1, 0, 0), (1, 0, 1), (1, 0, -1)]


def test_offsets_of_a_partition_that_is_not_here_have_an_error_in_their_row():
    world = ShardWorld()
    world.create(1)
    assert offsets(world, (9, LATEST), (1, LATEST)) == [(9, NUMBERS["STALE_METADATA"], -1), (1, 0, 0)]


def test_no_questions_are_answered_at_once():
    world = ShardWorld()
    assert offsets(world) == []


def test_a_description_tells_the_state_of_each_log():
    world = ShardWorld()
    world.create(1)
    world.fill(b"a", b"b")
    world.send(Api.DESCRIBE_PARTITIONS, DescribePartitionsRequest([1, 9]))
    (reply,) = world.net.take()
    here, away = decode_body(reply.body, DescribePartitionsReply).partitions
    assert (here.readable_offset, here.next_offset, here.status, here.error) == (2, 2, "open", 0)
    assert (away.error, away.status) == (NUMBERS["STALE_METADATA"], "closed")
