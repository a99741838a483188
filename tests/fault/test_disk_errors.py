"""Short writes and errors at each call site: the partition is fenced with a typed error; nothing is acked falsely."""

from __future__ import annotations

import errno
import random

import pytest

from ringlog.errors import DiskFull, PartitionFenced, RinglogError
from ringlog.limits import KIB, MIB
from ringlog.log.events import Fenced, Progress
from ringlog.log.partition import LogStatus
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.model import Durability
from tests.support.amounts import amount
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Call, Faults
from tests.support.log_workload import History, check_recovered
from tests.support.logs import LogWorld

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
"""A job that is dropped while the disk works for it complains in its `finally`: nobody would see it fail."""

POLICIES = ("ack", "interval:20", "os")


def workload(world: LogWorld, history: History) -> None:
    """Fixed: appends with two rolls, a checkpoint, a read from disk, a clean stop. Stops at the first error."""
    for number in range(30):
        value = b"%d" % number + bytes(80_000)
        try:
            offset = world.append(value, producer=(3, 0, number)).base_offset
        except (PartitionFenced, DiskFull) as error:
            history.errors.append(error)
            return
        history.sent[offset] = value
        world.now_ms += 15
        history.note(world.run())
        if number == 20:
            world.store.checkpoint()
        history.note(world.settle())
        if history.errors:
            return
    world.evict_all()
    assert len(list(world.records(0))) == 30
    history.note(world.store.close(now_ms=world.now_ms))


def call_sites(policy: str) -> list[Call]:
    """Every call that the workload makes."""
    world = LogWorld(FakeDisk(1), settings_with(policy))
    workload(world, History())
    return world.fake.calls


def settings_with(policy: str) -> LogSettings:
    return LogSettings(segment_bytes=1 * MIB, flush=FlushPolicy.parse(policy))


def run_with(faults: Faults, policy: str) -> tuple[FakeDisk, LogWorld | None, History, list[Exception]]:
    disk, history, raised = FakeDisk(1, faults=faults), History(), []
    world = None
    try:
        world = LogWorld(disk, settings_with(policy), open_now=False)
        world.open()
        workload(world, history)
    except (OSError, RinglogError) as error:
        raised.append(error)
    return disk, world, history, raised


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_error_at_each_call_site_is_typed_and_loses_nothing_acknowledged(policy, code):
    sites = call_sites(policy)
    kinds = {"write", "flush", "flush_dir", "read", "open", "rename", "truncate"}
    assert kinds | ({"preallocate"} if policy != "ack" else set()) <= {call.kind for call in sites}
    for number, kind, *_ in sites[:: amount(short=3, full=1)]:
        faults = Faults()
        faults.fail_call(number, errno=code)
        disk, world, history, raised = run_with(faults, policy)
        told = history.errors + raised
        assert told or kind in ("preallocate", "remove"), f"{kind} call {number} failed and nobody was told"
        if code == errno.ENOSPC and history.errors:
            assert any(isinstance(error, DiskFull) for error in history.errors)
        assert all(error.retriable for error in history.errors)
        survivor = disk.crash(random.Random(number))
        disk.lose_power()
        if world is not None:
            check_recovered(survivor, world, history)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("nbytes", [0, 1, 512, 4096])
def test_a_short_write_at_each_call_site_is_never_acknowledged(policy, nbytes):
    writes = [call.number for call in call_sites(policy) if call.kind == "write" and call.length > nbytes]
    for number in writes[:: amount(short=3, full=1)]:
        faults = Faults()
        faults.short_call(number, nbytes=nbytes)
        disk, world, history, raised = run_with(faults, policy)
        assert history.errors or raised, f"write call {number} was short and nobody was told"
        survivor = disk.crash(random.Random(number))
        disk.lose_power()
        assert world is not None
        check_recovered(survivor, world, history)


def test_a_failed_flush_is_never_tried_again():
    world = LogWorld(FakeDisk(1), settings_with("interval:20"))
    world.append(b"a")
    for _ in range(6):
        world.run()
    flushes = sum(call.kind == "flush" for call in world.fake.calls)
    world.fake.faults.fail("flush", nth=flushes)
    world.now_ms += 20
    for _ in range(3):
        world.run()
    assert world.log.status is LogStatus.FENCED
    for _ in range(50):
        world.now_ms += 100
        world.run()
    assert sum(call.kind == "flush" for call in world.fake.calls) == flushes + 1


@pytest.mark.parametrize("policy", ["interval:20", "os"])
@pytest.mark.parametrize("size", [100, 3 * MIB])
def test_what_a_failed_flush_left_in_a_cache_is_written_again_when_the_partition_is_reopened(policy, size):
    settings = LogSettings(segment_bytes=32 * MIB, flush=FlushPolicy.parse(policy))
    world = LogWorld(settings=settings)
    for number in range(5):
        world.append(b"%d" % number + bytes(size // 5))
        for _ in range(3):
            world.run()
    world.fake.faults.fail("flush", nth=sum(call.kind == "flush" for call in world.fake.calls))
    world.settle()
    assert world.log.status is LogStatus.FENCED
    world.store.reopen(world.partition, now_ms=world.now_ms)
    world.append(b"after")
    world.settle()
    assert world.log.flushed_offset == 6
    after = world.reopened(world.fake.crash(random.Random(1), survival=0.0))
    assert len(after.values()) == 6


def test_a_fenced_partition_refuses_appends_serves_reads_and_reopens():
    world = LogWorld()
    for number in range(5):
        world.append(b"%d" % number)
        world.settle()
    world.fake.faults.fail("write", nth=sum(call.kind == "write" for call in world.fake.calls))
    world.append(b"lost")
    events = world.settle()
    assert [type(event) for event in events] == [Fenced]
    with pytest.raises(PartitionFenced, match="eopen"):
        world.append(b"refused")
    assert world.values() == [b"0", b"1", b"2", b"3", b"4"]
    world.store.reopen(world.partition, now_ms=world.now_ms)
    # The failed write may have reached the disk all the same: its record was not acknowledged, nor denied.
    kept = world.values()
    assert kept in ([b"0", b"1", b"2", b"3", b"4"], [b"0", b"1", b"2", b"3", b"4", b"lost"])
    assert world.append(b"next").base_offset == len(kept)
    world.settle()
    assert world.values() == [*kept, b"next"]


def test_other_partitions_do_not_notice_a_fenced_one():
    from ringlog.model import TopicPartition

    world = LogWorld()
    other = LogWorld(world.disk, partition=TopicPartition("other", 0))
    world.append(b"a")
    world.settle()
    world.fake.faults.fail("write", nth=sum(call.kind == "write" for call in world.fake.calls))
    world.append(b"lost")
    world.settle()
    other.append(b"fine")
    assert Progress(other.log, 1, Durability.FLUSHED) in other.settle()


def test_a_full_disk_refuses_appends_with_a_typed_error_and_goes_on_when_there_is_room():
    disk = FakeDisk(1, faults=Faults(space_bytes=3 * MIB))
    world = LogWorld(disk, settings_with("ack"))
    acked = 0
    with pytest.raises(DiskFull) as full:
        for _ in range(200):
            world.append(bytes(100 * KIB))
            for event in world.settle():
                if isinstance(event, Fenced):
                    raise event.error
            acked = world.log.flushed_offset
    assert full.value.retriable
    assert acked > 10
    assert len(world.values()) == acked, "reads go on"
    world.store.reopen(world.partition, now_ms=world.now_ms)
    assert len(world.values()) == acked
    disk.faults.space_bytes = 100 * MIB
    world.now_ms += 5_000
    world.run()  # looks at the disk again
    world.append(b"room again")
    world.settle()
    assert world.log.flushed_offset == acked + 1


def test_a_file_system_without_preallocation_is_appended_to_all_the_same():
    faults = Faults()
    for nth in range(20):
        faults.fail("preallocate", nth=nth, errno=errno.EOPNOTSUPP)
    world = LogWorld(FakeDisk(1, faults=faults))
    for number in range(30):
        world.append(b"%d" % number + bytes(60_000))
        world.settle()
    assert world.log.flushed_offset == 30
    assert not [event for event in world.events if isinstance(event, Fenced)]


def test_without_preallocation_a_batch_larger_than_two_segments_is_written_too():
    faults = Faults()
    for nth in range(50):
        faults.fail("preallocate", nth=nth, errno=errno.EOPNOTSUPP)
    settings = LogSettings(segment_bytes=1 * MIB, batch_bytes_max=4 * MIB)
    world = LogWorld(FakeDisk(1, faults=faults), settings)
    world.append(bytes(3 * MIB))
    for _ in range(10):
        world.run()
    assert world.log.flushed_offset == 1
    world.settle()  # the segment that it filled is being sealed


def test_the_name_of_a_segment_is_flushed_before_its_first_batch_also_when_that_failed_before():
    world = LogWorld()
    world.close()
    world = world.reopened()
    world.fake.faults.fail("flush_dir", nth=sum(call.kind == "flush_dir" for call in world.fake.calls))
    world.append(b"lost")
    world.settle()
    assert world.log.status is LogStatus.FENCED
    world.store.reopen(world.partition, now_ms=world.now_ms)
    world.append(b"kept")
    world.settle()
    after = world.reopened(world.fake.crash(random.Random(1), survival=0.0))
    assert after.values() == [b"kept"]


def test_a_partition_fenced_while_its_last_block_is_read_back_only_fences():
    world = LogWorld(settings=settings_with("ack"))
    world.append(b"before")
    world.close()
    world = world.reopened()
    world.fake.hold_all("read", ".log")
    world.fake.hold_all("write", "partition.point")
    world.fake.faults.fail("write", nth=sum(call.kind == "write" for call in world.fake.calls))
    world.store.checkpoint()
    world.run()
    world.append(b"lost")
    world.run()
    point, block = world.fake.in_flight_calls
    assert (point.kind, block.kind) == ("write", "read")
    world.fake.release(point.token)
    world.run()
    assert world.log.status is LogStatus.FENCED
    world.fake.release_all()
    world.run()
    world.store.reopen(world.partition, now_ms=world.now_ms)
    assert world.values() == [b"before"]


def test_a_failed_truncation_takes_no_appends_until_the_partition_was_opened_again():
    def world_with_records():
        world = LogWorld(settings=settings_with("ack"))
        for number in range(30):
            world.append(b"%d" % number + bytes(80_000))
            world.settle()
        return world

    world = world_with_records()
    before = len(world.fake.calls)
    world.store.truncate(world.partition, 3, now_ms=world.now_ms)
    changing = ("write", "flush", "flush_dir", "truncate", "rename")
    sites = [call.number for call in world.fake.calls[before:] if call.kind in changing]
    world.settle()  # a chore that is dropped under way complains
    for number in sites:
        world = world_with_records()
        world.fake.faults.fail_call(number)
        with pytest.raises(OSError):
            world.store.truncate(world.partition, 3, now_ms=world.now_ms)
        with pytest.raises(PartitionFenced):
            world.append(b"refused")
        world.store.reopen(world.partition, now_ms=world.now_ms)
        end = world.append(b"taken").base_offset
        world.settle()
        after = world.reopened(world.fake.crash(random.Random(number)))
        assert after.values()[end:] == [b"taken"]


def test_a_partition_that_could_not_be_reopened_refuses_appends_and_is_tried_again():
    world = LogWorld()
    world.append(b"a")
    world.settle()
    world.fake.faults.fail("read", nth=sum(call.kind == "read" for call in world.fake.calls))
    with pytest.raises(OSError):
        world.store.reopen(world.partition, now_ms=world.now_ms)
    with pytest.raises(PartitionFenced, match="pen it"):
        world.append(b"refused")
    world.store.reopen(world.partition, now_ms=world.now_ms)
    assert world.values() == [b"a"]


@pytest.mark.parametrize("policy", ["interval:20", "os"])
def test_what_a_failed_flush_left_in_a_cache_is_written_again_by_the_next_process(policy):
    world = LogWorld(settings=settings_with(policy))
    for number in range(5):
        world.append(b"%d" % number + bytes(1_000))
        for _ in range(3):
            world.run()
    world.fake.faults.fail("flush", nth=sum(call.kind == "flush" for call in world.fake.calls))
    world.settle()
    assert world.log.status is LogStatus.FENCED
    next_process = world.reopened(world.fake.after_death(2))
    assert next_process.log.flushed_offset == 5, "from now on these count as flushed"
    after = next_process.reopened(next_process.fake.crash(random.Random(1), survival=0.0))
    assert len(after.values()) == 5
