"""Promises of appends: order, grouping, rolling, back-pressure, idempotence."""

from __future__ import annotations

import pytest

from ringlog.errors import (
    BatchTooLarge,
    InvalidRequest,
    InvariantBroken,
    OutOfOrderSequence,
    PartitionBusy,
)
from ringlog.limits import BLOCK_BYTES, KIB, MIB, WRITE_BYTES_TARGET
from ringlog.log.arena import Arena
from ringlog.log.batch import BatchInfo
from ringlog.log.events import Progress
from ringlog.log.extent import AppendBuffer
from ringlog.log.segment import ActiveSegment
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.model import Durability, TimestampType, TopicPartition
from ringlog.records.scan import check, scan
from tests.support.fake_disk import FakeDisk
from tests.support.logs import LogWorld, aligned_memory, batch_of


def writes(world):
    """Of batches, where each ack is of a flush: space is filled with zeros that are not flushed."""
    return [c for c in world.fake.calls if c.kind == "write" and c.path.endswith(".log") and c.durable]


def test_offsets_are_dense_over_batches_and_segments():
    world = LogWorld()
    offsets = []
    for _ in range(60):
        appended = world.append(*[bytes(20_000)] * 3)
        offsets.append((appended.base_offset, appended.last_offset))
        world.run()
    assert offsets == [(3 * n, 3 * n + 2) for n in range(60)]
    world.settle()
    assert len(world.log.segments) > 2
    assert [record.offset for record in world.records()] == list(range(180))


def test_nothing_is_acknowledged_before_its_write_completed():
    world = LogWorld()
    world.append(b"warm up")
    world.settle()
    world.fake.hold_all("write", ".log")
    world.append(b"a")
    for _ in range(5):
        assert not world.run()
    world.fake.release_all()
    assert world.settle() == [Progress(world.log, 2, Durability.FLUSHED)]


def test_what_arrives_during_a_write_joins_the_next_one():
    world = LogWorld()
    world.append(b"first")
    world.settle()
    world.fake.hold_all("write", ".log")
    world.append(b"in flight")
    world.run()
    before = len(writes(world))
    for number in range(10):
        world.append(b"%d" % number)
        world.run()
    assert len(writes(world)) == before
    world.fake.release_all()
    world.settle()
    assert len(writes(world)) == before + 1
    assert len(world.values()) == 12


def test_appends_of_one_cycle_to_many_partitions_are_one_submission():
    world = LogWorld()
    names = [TopicPartition("many", number) for number in range(20)]
    for name in names:
        world.store.open(name, world.settings, now_ms=0)
        world.store.append(name, memoryview(data := batch_of(b"x")), [info_of(data)], now_ms=0)
    world.settle()
    for name in names:
        world.store.append(name, memoryview(data := batch_of(b"y")), [info_of(data)], now_ms=0)
    world.fake.hold_all("write", ".log")
    world.run()
    assert len([call for call in world.fake.in_flight_calls if call.kind == "write"]) == 20
    world.fake.release_all()
    world.settle()


def info_of(data):
    row = check(data)[0]
    return BatchInfo(int(row["length"]), int(row["record_count"]), int(row["max_timestamp"]))


def test_the_tail_block_is_rewritten_with_its_old_bytes():
    world = LogWorld()
    for number in range(50):
        world.append(b"%04d" % number)
        world.settle()
    positions = {call.position for call in writes(world)}
    assert positions == {0}, "fifty small batches share the first block"
    world.evict_all()
    assert world.values() == [b"%04d" % number for number in range(50)]


def test_a_group_stops_growing_at_its_target():
    world = LogWorld(settings=LogSettings())
    world.append(b"open the file")
    world.settle()
    for _ in range(12):
        world.append(bytes(512 * 1024))
    world.settle()
    longest = max(call.length for call in writes(world))
    assert WRITE_BYTES_TARGET <= longest <= WRITE_BYTES_TARGET + 512 * 1024 + 2 * BLOCK_BYTES + 100


def test_a_batch_larger_than_the_partition_takes_is_refused():
    world = LogWorld()
    with pytest.raises(BatchTooLarge, match="at most"):
        world.append(bytes(2 * MIB))
    assert world.log.next_offset == 0


def test_more_batches_than_one_write_takes_are_refused_in_one_append():
    world = LogWorld(settings=LogSettings())
    batch = batch_of(bytes(900_000))
    with pytest.raises(BatchTooLarge, match="in one append"):
        world.append_raw(batch * 3)
    world.append_raw(batch * 2)
    world.settle()
    assert world.log.next_offset == 2


def test_no_write_reaches_further_than_the_settings_say():
    world = LogWorld(settings=LogSettings())
    world.append(b"open the file")
    world.settle()
    for _ in range(6):
        world.append_raw(batch_of(bytes(1_000_000)) * 2)
    world.settle()
    assert max(call.length for call in writes(world)) <= world.settings.reach_bytes


def test_too_many_waiting_bytes_are_refused_and_taken_later():
    world = LogWorld(settings=LogSettings(), memory_bytes=128 * MIB)
    world.fake.hold_all("write", ".log")
    accepted = 0
    with pytest.raises(PartitionBusy):
        for _ in range(100):
            world.append(bytes(1_000_000))
            accepted += 1
            world.run()
    world.fake.release_all()
    world.settle()
    assert world.log.flushed_offset == accepted
    world.append(b"again")
    world.settle()
    assert len(world.values()) == accepted + 1


def test_memory_that_is_used_up_by_unwritten_batches_is_a_typed_refusal():
    world = LogWorld(memory_bytes=2 * MIB)
    world.append(b"open")
    world.settle()
    world.fake.hold_all("write", ".log")
    with pytest.raises(PartitionBusy):
        for _ in range(100):
            world.append(bytes(100_000))
    world.fake.release_all()
    count = world.log.next_offset
    world.settle()
    assert world.log.flushed_offset == count
    assert len(world.values()) == count


def test_partitions_that_fell_idle_leave_their_memory_to_others():
    world = LogWorld(memory_bytes=4 * MIB)
    partitions = [TopicPartition("many", number) for number in range(12)]
    for partition in partitions:
        world.store.open(partition, now_ms=world.now_ms)
    for _ in range(2):
        for partition in partitions:
            world.partition = partition
            for _ in range(4):  # quickly enough to be given a large chunk
                world.append(bytes(120 * KIB))
                world.settle()
    world.evict_all()
    arena = world.store._context.arena
    assert arena.free_bytes == arena.total_bytes


def test_a_small_chunk_will_do_where_there_is_no_large_one():
    arena = Arena(aligned_memory(3 * MIB))
    held = arena.take(1 * MIB)
    buffer = AppendBuffer(arena, make_room=lambda: False)
    extent = buffer.begin(ActiveSegment(0, 0), 0, 0, now_ms=0)
    for _ in range(40):  # quickly enough to be given a whole slab, if there were one
        buffer.add(extent, memoryview(bytes(8 * KIB)), now_ms=0)
    extent.release()
    buffer.release()
    held.release()
    assert arena.free_bytes == arena.total_bytes


def test_segments_roll_by_age_at_the_next_append():
    world = LogWorld(settings=LogSettings(segment_ms=1000))
    world.append(b"old")
    world.settle()
    world.now_ms += 1000
    world.append(b"new")
    world.settle()
    assert [segment.base_offset for segment in world.log.segments] == [0, 1]


def test_segments_roll_by_age_without_an_append():
    world = LogWorld(settings=LogSettings(segment_ms=1000))
    world.append(b"old")
    world.settle()
    world.now_ms += 5000
    world.run()
    world.settle()
    assert [segment.base_offset for segment in world.log.segments] == [0, 1]
    world.append(b"new")
    world.settle()
    assert world.values() == [b"old", b"new"]


def test_a_segment_rolls_before_its_index_would_overflow(monkeypatch):
    monkeypatch.setattr("ringlog.log.index.INDEX_BYTES_MAX", 12 * 10)
    world = LogWorld(settings=LogSettings())
    for timestamp in range(40):
        world.append(bytes(5_000), timestamp=timestamp)
    world.settle()
    assert len(world.log.segments) >= 4
    assert all(len(segment.index.times) <= 10 for segment in world.log.segments if hasattr(segment, "index"))
    assert len(world.values()) == 40


def test_a_segment_rolls_before_a_relative_offset_would_overflow(monkeypatch):
    monkeypatch.setattr("ringlog.log.partition.RELATIVE_OFFSET_MAX", 9)
    world = LogWorld(settings=LogSettings())
    for _ in range(5):
        world.append(b"a", b"b", b"c", b"d")
    world.settle()
    assert [segment.base_offset for segment in world.log.segments] == [0, 8, 16]


def test_append_time_replaces_the_producers_time():
    world = LogWorld(settings=LogSettings(append_time=True))
    world.now_ms = 5_000_000
    world.append(b"x", timestamp=1)
    world.settle()
    data = world.store.read_now(world.partition, 0, 1000).tobytes()
    row = check(data)[0]
    assert row["attributes"] & 8 == TimestampType.APPEND << 3
    assert [record.timestamp for record in world.records()] == [5_000_000]
    assert world.store.find_time_now(world.partition, 4_999_999).offset == 0


def test_batches_carry_the_leader_epoch_of_their_append():
    world = LogWorld()
    world.append(b"a", leader_epoch=3)
    world.append(b"b", leader_epoch=5)
    world.settle()
    data = world.store.read_now(world.partition, 0, 1000).tobytes()
    assert scan(data).table["leader_epoch"].tolist() == [3, 5]
    assert [start.epoch for start in world.log.epochs.starts] == [3, 5]
    with pytest.raises(InvariantBroken):
        world.append(b"c", leader_epoch=4)


def test_a_repeated_batch_is_not_appended_twice():
    world = LogWorld()
    first = world.append(b"a", b"b", producer=(9, 0, 0))
    again = world.append(b"a", b"b", producer=(9, 0, 0))
    assert again == first._replace(repeated=True)
    with pytest.raises(OutOfOrderSequence):
        world.append(b"z", producer=(9, 0, 7))
    world.settle()
    assert world.values() == [b"a", b"b"]


def test_an_idempotent_producer_sends_one_batch_at_a_time():
    world = LogWorld()
    two = batch_of(b"a", producer=(9, 0, 0)) + batch_of(b"b", producer=(9, 0, 1))
    with pytest.raises(InvalidRequest):
        world.append_raw(two)


def test_several_batches_of_one_append_keep_their_order():
    world = LogWorld()
    world.append_raw(batch_of(b"a", b"b") + batch_of(b"c") + batch_of(b"d"))
    world.settle()
    assert [(r.offset, r.value) for r in world.records()] == list(enumerate([b"a", b"b", b"c", b"d"]))


@pytest.mark.parametrize("text", ["", "ack ", "interval", "interval:0", "interval:-5", "interval:x", "never"])
def test_a_wrong_flush_policy_says_what_is_right(text):
    with pytest.raises(InvalidRequest, match="ack, interval:MS"):
        FlushPolicy.parse(text)


@pytest.mark.parametrize(
    "field", [{"segment_bytes": 10}, {"segment_bytes": 2**31}, {"segment_ms": 0}, {"batch_bytes_max": 3}]
)
def test_settings_out_of_range_are_refused(field):
    with pytest.raises(InvalidRequest):
        LogSettings(**field)


def test_flush_by_interval_acknowledges_written_and_reports_flushed_later():
    world = LogWorld(settings=LogSettings(flush=FlushPolicy.parse("interval:100")))
    world.append(b"a")
    events = []
    for _ in range(8):
        events += world.run()
    assert events == [Progress(world.log, 1, Durability.WRITTEN)]
    world.now_ms += 100
    for _ in range(3):
        events += world.run()
    assert events[1:] == [Progress(world.log, 1, Durability.FLUSHED)]


def test_flush_by_interval_also_flushes_what_was_still_being_written_when_it_was_due():
    world = LogWorld(settings=LogSettings(flush=FlushPolicy.parse("interval:20")))
    world.append(b"a")
    world.settle()
    world.fake.hold_all("write", ".log")
    world.append(b"b")
    world.run()
    world.now_ms += 100
    world.run()
    assert world.store.flushes and world.store.flushes.next_due_ms is None, "it waits for the write alone"
    world.fake.release_all()
    for _ in range(10):
        world.now_ms += 5
        world.run()
    assert world.log.flushed_offset == 2


def test_flush_by_interval_also_flushes_what_was_written_during_a_flush():
    world = LogWorld(settings=LogSettings(flush=FlushPolicy.parse("interval:20")))
    world.append(b"a")
    for _ in range(4):
        world.run()
    world.fake.hold_all("flush")
    world.now_ms += 20
    world.run()
    world.append(b"b")
    for _ in range(10):
        world.now_ms += 20
        world.run()
    world.fake.release_all()
    for _ in range(4):
        world.now_ms += 20
        world.run()
    assert world.log.flushed_offset == 2
    world.run()
    assert not world.store.flushes


def test_flush_by_the_os_never_flushes_on_its_own():
    world = LogWorld(settings=LogSettings(flush=FlushPolicy.parse("os")))
    world.append(b"a")
    for _ in range(20):
        world.now_ms += 1000
        world.run()
    assert world.log.written_offset == 1
    assert not [call for call in world.fake.calls if call.kind == "flush" and call.path.endswith(".log")]


def test_completions_in_any_order_acknowledge_in_order():
    world = LogWorld(FakeDisk(seed=5, delays=True))
    for number in range(200):
        world.append(b"%d" % number)
        world.run()
    world.settle()
    offsets = [event.offset for event in world.events if isinstance(event, Progress)]
    assert offsets == sorted(offsets)
    assert world.values() == [b"%d" % number for number in range(200)]


def test_no_file_is_closed_under_a_flush_when_its_segment_is_sealed_meanwhile():
    world = LogWorld(settings=LogSettings(flush=FlushPolicy.parse("os")))
    world.append(b"a")
    while world.log.written_offset < 1:
        world.run()
    world.log.flush()
    slow = [call.token for call in world.fake.in_flight_calls if call.kind == "flush"]
    world.disk.submit()
    world.fake.hold(slow[0])
    world.log.roll(world.now_ms)
    for _ in range(50):
        world.run()
    files = world.log.files
    for base_offset in (1, 0):  # what is not held is closed when others were used since
        files.release(files.hold(base_offset, write=base_offset == 1))
    for handle in list(files._open.values()):
        assert handle.key != (0, False) or handle.holders == 1
    world.fake.release_all()
    world.settle()
    assert world.log.flushed_offset == 1
