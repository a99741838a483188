"""Deleting records: readers are refused at once, and the answer waits until that is durable."""

from __future__ import annotations

from ringlog.errors import InvalidRequest, OffsetOutOfRange, PartitionFenced, StaleMetadata
from ringlog.net.framing import Api
from ringlog.net.messages import DeleteRecordsReply, DeleteRecordsRequest, PartitionStart, decode_body
from ringlog.net.wire_errors import number_of
from tests.support.shard_world import ShardWorld


def world_with_records(count=5, **config):
    world = ShardWorld()
    world.create(1, **config)
    world.fill(*[b"%d" % number for number in range(count)])
    return world


def delete(world, *starts):
    world.send(Api.DELETE_RECORDS, DeleteRecordsRequest([PartitionStart(*start) for start in starts]))


def answers(world):
    return [
        [
            (row.partition, row.error, row.log_start_offset)
            for row in decode_body(r.body, DeleteRecordsReply).deleted
        ]
        for r in world.net.take()
    ]


def test_the_answer_comes_when_the_new_start_is_durable():
    world = world_with_records()
    world.disk.hold_all("write", "partition.state")
    delete(world, (1, 3))
    world.settle()
    assert answers(world) == []
    assert world.log().log_start_offset == 3
    world.disk.release_all()
    world.settle()
    assert answers(world) == [[(1, 0, 3)]]


def test_minus_one_deletes_all_that_can_be_read():
    world = world_with_records()
    delete(world, (1, -1))
    world.settle()
    assert answers(world) == [[(1, 0, 5)]]


def test_an_offset_below_the_start_deletes_nothing_and_is_answered_at_once():
    world = world_with_records()
    delete(world, (1, 3))
    world.settle()
    answers(world)
    delete(world, (1, 2))
    assert answers(world) == [[(1, 0, 3)]]


def test_an_offset_beyond_the_end_is_refused():
    world = world_with_records()
    delete(world, (1, 6), (1, -2), (9, 0))
    out, stale = number_of(OffsetOutOfRange("")), number_of(StaleMetadata(""))
    assert answers(world) == [[(1, out, -1), (1, out, -1), (9, stale, -1)]]


def test_a_compacted_topic_refuses_unless_it_deletes_too():
    world = world_with_records()
    world.configure(cleanup_policy="compact")
    delete(world, (1, 3))
    assert answers(world) == [[(1, number_of(InvalidRequest("")), -1)]]
    world.configure(cleanup_policy="compact,delete")
    delete(world, (1, 3))
    world.settle()
    assert answers(world) == [[(1, 0, 3)]]


def test_who_waits_is_told_when_the_partition_is_closed():
    world = world_with_records()
    world.disk.faults.fail("rename", nth=sum(call.kind == "rename" for call in world.disk.calls))
    delete(world, (1, 3))
    world.settle()
    assert answers(world) == [[(1, number_of(PartitionFenced("")), -1)]]


def test_a_dead_network_process_is_not_answered():
    world = world_with_records()
    world.disk.hold_all("write", "partition.state")
    delete(world, (1, 3))
    world.core.forget(world.net)
    world.disk.release_all()
    world.settle()
    assert answers(world) == []


def test_an_empty_request_is_answered():
    world = world_with_records()
    delete(world)
    assert answers(world) == [[]]
