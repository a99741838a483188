"""A follower's log: batches as the leader stamped them, gaps and all, also after a crash."""

from __future__ import annotations

import random

import msgspec
import pytest

from ringlog.errors import CorruptBatch, InvariantBroken, OffsetOutOfRange, PartitionBusy, PartitionFenced
from ringlog.limits import KIB, MIB
from ringlog.log.events import Submitted
from ringlog.log.partition import LogStatus, PartitionLog
from ringlog.log.replicated import append_as_they_are
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.log.store import LogStore
from ringlog.log.verify import verify_partition
from ringlog.model import TopicPartition
from ringlog.records.decode import decode
from ringlog.records.scan import check_rows, stamp
from tests.support.fake_disk import FakeDisk
from tests.support.logs import aligned_memory, batch_of

NAME = TopicPartition("events", 0)
COMPACTED = LogSettings(compact=True, gaps_at_append=True)


def opened(disk: FakeDisk, settings: LogSettings = COMPACTED) -> tuple[LogStore, PartitionLog]:
    store = LogStore(disk, "/data", memory=aligned_memory(64 * MIB))
    return store, store.open(NAME, settings, now_ms=0)


def new_disk() -> FakeDisk:
    disk = FakeDisk(seed=1)
    disk.make_dir("/data")
    return disk


def stamped(*batches: tuple[int, int, bytes], producer=None) -> bytearray:
    """Batches of one record each: (offset, epoch, value)."""
    data = bytearray()
    for offset, epoch, value in batches:
        one = bytearray(batch_of(value, producer=producer))
        stamp(one, base_offset=offset, leader_epoch=epoch)
        data += one
    return data


def append(store: LogStore, data: bytearray) -> None:
    append_as_they_are(store, NAME, memoryview(data), check_rows(data), now_ms=0)


def test_not_a_byte_is_changed():
    store, log = opened(new_disk())
    data = stamped((0, 3, b"a"), (1, 3, b"b"), (2, 5, b"c"))
    append(store, bytearray(data))
    store.drain(now_ms=0)
    assert store.read_now(NAME, 0, MIB).tobytes() == bytes(data)
    assert (log.next_offset, log.flushed_offset) == (3, 3)
    assert [tuple(start) for start in log.epochs.starts] == [(3, 0), (5, 2)]


@pytest.mark.parametrize("fills", [0, 1, 40 * KIB], ids=["a new extent", "one that grows", "over two chunks"])
def test_of_an_answer_with_a_wrong_crc_nothing_is_kept(fills: int):
    store, log = opened(new_disk())
    kept = stamped((0, 3, bytes(fills))) if fills else bytearray()
    if kept:
        append(store, kept)
    arena = store._context.arena
    before = arena.free_bytes
    right = stamped((log.next_offset, 3, b"b" * 30 * KIB), (log.next_offset + 1, 3, b"c" * 30 * KIB))
    wrong = bytearray(right)
    wrong[-1] ^= 1
    for _ in range(3):
        with pytest.raises(CorruptBatch, match="crc"):
            append_as_they_are(store, NAME, memoryview(wrong), check_rows(right), now_ms=0)
    assert arena.free_bytes == before
    append(store, right)
    store.drain(now_ms=0)
    assert store.read_now(NAME, 0, MIB).tobytes() == bytes(kept + right)


def test_gaps_are_kept_and_read_over_also_after_a_crash():
    disk = new_disk()
    store, log = opened(disk)
    data = stamped((0, 1, b"a"), (10, 1, b"b"), (20, 2, b"c"))
    append(store, bytearray(data))
    append(store, stamped((100, 2, b"d")))
    store.drain(now_ms=0)
    assert log.next_offset == 101
    assert store.read_now(NAME, 5, MIB).next_offset == 101
    again, log = opened(disk.crash(random.Random(1), survival=0.0))
    assert log.next_offset == 101
    assert [tuple(start) for start in log.epochs.starts] == [(1, 0), (2, 20)]
    assert again.read_now(NAME, 0, MIB).tobytes()[: len(data)] == bytes(data)


FAR = 2**31 + 100
"""Further than a segment's index can say: as far as that, old records may have gone from a compacted log."""
LARGE = bytes(5_000)
"""More than lies between two entries of an index."""


@pytest.mark.parametrize(
    "before",
    [[], [(0, 1, LARGE)], [(0, 1, LARGE), (FAR - 50, 1, LARGE)]],
    ids=["into an empty log", "behind a batch", "behind another gap"],
)
@pytest.mark.parametrize("flush", ["ack", "os"])
@pytest.mark.parametrize("ends", ["crash", "stop"])
def test_a_gap_that_no_segment_spans_begins_a_new_one(before, flush, ends):
    disk = new_disk()
    settings = msgspec.structs.replace(COMPACTED, flush=FlushPolicy.parse(flush))
    store, log = opened(disk, settings)
    wanted = [*before, (FAR, 2, LARGE), (FAR + 7, 2, b"b"), (3 * FAR, 3, LARGE), (3 * FAR + 1, 3, b"c")]
    offsets = [offset for offset, _, _ in wanted]
    while wanted:  # as a follower does: what was not taken is asked for again
        append(store, stamped(*wanted))
        assert log.next_offset > wanted[0][0]
        wanted = [batch for batch in wanted if batch[0] >= log.next_offset]
    store.drain(now_ms=0)
    assert log.held_offset == log.next_offset == 3 * FAR + 2

    def read(store: LogStore) -> list[int]:
        found, at = [], 0
        while at < log.next_offset:
            slices = store.read_now(NAME, at, MIB)
            found += [record.offset for record in decode(slices.tobytes())]
            assert slices.next_offset > at
            at = slices.next_offset
        return found

    assert read(store) == offsets
    if ends == "stop":
        store.close(now_ms=0)
    else:
        disk = disk.crash(random.Random(1), survival=0.0)
    for _ in range(2):
        store, log = opened(disk, settings)
        assert (log.log_start_offset, log.next_offset) == (0, 3 * FAR + 2)
        assert store.reports[NAME].problems == []
        assert read(store) == offsets
        assert store.read_now(NAME, FAR + 1_000, MIB).next_offset > 3 * FAR
        disk = disk.crash(random.Random(2), survival=0.0)
    log = store.truncate(NAME, FAR + 1_000, now_ms=0)
    assert log.next_offset == FAR + 8 and read(store) == [offset for offset in offsets if offset < 2 * FAR]


def test_a_gap_for_which_there_was_no_memory_begins_one_segment(monkeypatch):
    store, log = opened(new_disk())
    append(store, stamped((0, 1, LARGE)))
    with monkeypatch.context() as patch:

        def busy(*_: object) -> None:
            raise PartitionBusy("for the test")

        patch.setattr(log, "copy_in", busy)
        with pytest.raises(PartitionBusy):
            append(store, stamped((FAR, 1, LARGE)))
    append(store, stamped((FAR, 1, LARGE)))
    store.drain(now_ms=0)
    assert [segment.base_offset for segment in log.segments] == [0, FAR]
    assert [record.offset for record in decode(store.read_now(NAME, 0, MIB).tobytes())] == [0, FAR]


def test_gaps_outlast_a_change_to_a_policy_that_leaves_none():
    disk = new_disk()
    store, log = opened(disk)
    append(store, stamped((2, 1, b"a"), (9, 1, b"b"), (30, 1, b"c")))
    store.drain(now_ms=0)
    store.reconfigure(NAME, LogSettings(), now_ms=0)
    store, log = opened(disk.crash(random.Random(1)), LogSettings())
    assert store.reports[NAME].problems == []
    assert [r.offset for r in decode(store.read_now(NAME, 0, MIB).tobytes())] == [2, 9, 30]
    assert log.next_offset == 31


@pytest.mark.parametrize("when", ["while it is fenced", "and its state cannot be saved"])
def test_gaps_outlast_a_change_of_policy_of_a_log_that_has_to_be_reopened(when):
    disk = new_disk()
    store, log = opened(disk)
    append(store, stamped((2, 1, b"a"), (9, 1, b"b"), (30, 1, b"c")))
    store.drain(now_ms=0)
    if when == "while it is fenced":
        log.fence(PartitionFenced("for the test"))
    else:
        disk.faults.fail("rename", nth=sum(call.kind == "rename" for call in disk.calls))
    store.reconfigure(NAME, LogSettings(), now_ms=0)
    assert log.status is LogStatus.FENCED
    log = store.reopen(NAME, now_ms=0)
    assert [r.offset for r in decode(store.read_now(NAME, 0, MIB).tobytes())] == [2, 9, 30]
    assert log.next_offset == 31


@pytest.mark.parametrize("begun_with", [COMPACTED, LogSettings()])
def test_gaps_outlast_a_change_of_policy_while_nobody_serves_the_log(begun_with):
    disk = new_disk()
    store, _ = opened(disk, begun_with)
    store.close(now_ms=0)
    store, _ = opened(disk)
    append(store, stamped((2, 1, b"a"), (9, 1, b"b"), (30, 1, b"c")))
    store.drain(now_ms=0)
    survivor = disk.crash(random.Random(1))  # and meanwhile the topic is given another policy
    disk.lose_power()
    for _ in range(2):
        store, log = opened(survivor, LogSettings())
        assert [r.offset for r in decode(store.read_now(NAME, 0, MIB).tobytes())] == [2, 9, 30]
        assert log.next_offset == 31
        disk, survivor = survivor, survivor.crash(random.Random(2))
        disk.lose_power()


def test_it_can_be_cut_and_go_on():
    store, _ = opened(new_disk())
    append(store, stamped((0, 1, b"a"), (1, 2, b"b"), (2, 2, b"c")))
    log = store.truncate(NAME, 1, now_ms=0)
    assert (log.next_offset, log.epochs.latest) == (1, 1)
    append(store, stamped((1, 3, b"B")))
    store.drain(now_ms=0)
    assert (log.next_offset, log.epochs.latest) == (2, 3)


def test_a_producer_is_known_by_what_was_replicated():
    store, log = opened(new_disk())
    append(store, stamped((7, 1, b"a"), producer=(77, 0, 0)))
    assert log.producers.entries[0].producer_id == 77
    assert log.producers.entries[0].batches[0].base_offset == 7


@pytest.mark.parametrize("batch", [(1, 5, b"overlaps"), (2, 4, b"of an earlier epoch")])
def test_what_cannot_stand_behind_the_log_is_refused(batch):
    store, _ = opened(new_disk())
    append(store, stamped((0, 5, b"a"), (1, 5, b"b")))
    with pytest.raises(InvariantBroken):
        append(store, stamped(batch))


def test_readers_see_no_more_than_is_committed_and_followers_all_that_is_held():
    store, log = opened(new_disk())
    append(store, stamped((0, 1, b"a"), (1, 1, b"b"), (2, 1, b"c")))
    store.drain(now_ms=0)
    log.committed_offset = 2
    assert (log.readable_offset, log.held_offset) == (2, 3)
    assert store.read_now(NAME, 0, MIB).next_offset == 2, "a batch of an extent, not all of it"
    assert store.read_tail(NAME, 0, MIB, ahead=True).next_offset == 3
    assert store.read_now(NAME, 2, MIB).nbytes == 0
    store._tail.evict_oldest()
    assert store.read_now(NAME, 0, MIB).next_offset == 2
    assert store.read_now(NAME, 2, MIB).nbytes == 0


def test_followers_are_sent_what_is_being_written_and_readers_are_not():
    disk = new_disk()
    store, log = opened(disk)
    log.committed_offset = 0
    append(store, stamped((0, 1, b"a"), (1, 1, b"b")))
    store.drain(now_ms=0)
    disk.hold_all("write")
    append(store, stamped((2, 1, b"c")))
    assert store.push(0) == [Submitted(log)]
    append(store, stamped((3, 1, b"d")))  # waits for the write before it
    assert (log.held_offset, log.submitted_offset, log.next_offset) == (2, 3, 4)
    for offset in (0, 2):
        with store.read_tail(NAME, offset, MIB, ahead=True) as slices:
            assert slices.next_offset == 3
            assert [record.value for record in decode(slices.tobytes())][-1] == b"c"
    log.committed_offset = 2
    assert store.read_tail(NAME, 0, MIB).next_offset == 2
    with pytest.raises(OffsetOutOfRange):
        store.read_tail(NAME, 3, MIB)
    store._tail.evict_oldest()
    assert store.read_tail(NAME, 0, MIB, ahead=True) is None, "the older part is on disk alone"
    assert store.read_tail(NAME, 2, MIB, ahead=True).next_offset == 3
    disk.release_all()
    store.drain(now_ms=0)
    assert log.held_offset == log.submitted_offset == 4


def test_retention_leaves_alone_what_is_not_committed():
    store, log = opened(new_disk(), LogSettings(segment_bytes=MIB, retention_bytes=0))
    log.committed_offset = 1
    for offset in range(4):
        append(store, stamped((offset, 1, bytes(600_000))))
        store.drain(now_ms=0)
    store.run(now_ms=5_000)
    assert log.log_start_offset == 0
    log.committed_offset = 4
    store.run(now_ms=10_000)
    assert log.log_start_offset > 1
    store.drain(now_ms=10_000)


def test_compaction_leaves_alone_what_is_not_committed():
    settings = LogSettings(segment_bytes=MIB, compact=True, gaps_at_append=True, dirty_ratio_min=0.0)
    store, log = opened(new_disk(), settings)
    log.committed_offset = 0
    for offset in range(6):
        append(store, stamped((offset, 1, bytes(400_000))))
        store.drain(now_ms=0)
    assert len(log.segments) > 1
    for now_ms in range(60_000, 120_000, 10_000):
        store.run(now_ms=now_ms)
        assert not store.upkeep.is_busy_with(log)
    log.committed_offset = 6
    for now_ms in range(200_000, 260_000, 10_000):
        store.run(now_ms=now_ms)
        if store.upkeep.is_busy_with(log):
            break
    assert store.upkeep.is_busy_with(log)
    store.upkeep.cancel(log)
    while store.upkeep.is_busy_with(log):
        store.run(now_ms=300_000)


def test_a_replica_with_gaps_still_says_so_when_its_topic_is_not_compacted_any_more():
    disk = new_disk()
    store, _ = opened(disk)
    append(store, stamped((2, 1, b"a"), (9, 1, b"b")))
    store.drain(now_ms=0)
    store.reconfigure(NAME, LogSettings(), now_ms=0)
    store.close(now_ms=0)
    assert [found for found in verify_partition(disk, f"/data/{NAME}") if found.is_violation] == []
