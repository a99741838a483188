"""Every kind of violation, planted one at a time into a good log, is reported under its rule and at its place."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from ringlog.log.envelope import seal
from ringlog.log.epochs import EpochStart
from ringlog.log.findings import Rule
from ringlog.log.index import OFFSET_ENTRY, TIME_ENTRY
from ringlog.log.names import STATE_NAME
from ringlog.log.producers import SNAPSHOT_MAGIC, KeptBatch, ProducerEntry
from ringlog.log.verify import verify_partition
from ringlog.records.encode import encode
from tests.support.sample_logs import SampleLog, closed_log, crashed_log

FIRST = "00000000000000000000"
"""The first segment, sealed; its batches have the codecs 0 to 4 in turn."""
GARBAGE = b"\xff" * 100


class Place(NamedTuple):
    """Where a violation must be reported."""

    rule: Rule
    name: str
    byte: int | None


Plant = Callable[[SampleLog], Place]
PLANTS: list[Plant] = []


def plant(damage: Plant) -> Plant:
    PLANTS.append(damage)
    return damage


@pytest.mark.parametrize("damage", PLANTS, ids=lambda damage: damage.__name__)
def test_a_planted_violation_is_reported_at_its_place(damage):
    log = closed_log()
    place = damage(log)
    findings = verify_partition(log.disk, log.path)
    wanted = (place.rule, log.file(place.name), place.byte)
    assert wanted in [(f.rule, f.path, f.byte) for f in findings if f.is_violation], "\n".join(
        str(finding) for finding in findings
    )


# -- segments --------------------------------------------------------------------------------------------------


@plant
def a_flipped_bit_in_a_sealed_segment(log):
    at = log.position(f"{FIRST}.log", 4)
    log.flip(f"{FIRST}.log", at + 100)
    return Place(Rule.WHOLE_BATCHES, f"{FIRST}.log", at)


@plant
def a_flipped_bit_in_the_active_segment_of_a_closed_log(log):
    active = log.segments()[-1]
    at = log.position(active, 1)
    log.flip(active, at + 100)
    return Place(Rule.WHOLE_BATCHES, active, at)


@plant
def garbage_behind_a_sealed_segment(log):
    content = log.content(f"{FIRST}.log")
    log.put(f"{FIRST}.log", content + GARBAGE)
    return Place(Rule.WHOLE_BATCHES, f"{FIRST}.log", len(content))


@plant
def zeros_behind_a_sealed_segment(log):
    content = log.content(f"{FIRST}.log")
    log.put(f"{FIRST}.log", content + bytes(4096))
    return Place(Rule.WHOLE_BATCHES, f"{FIRST}.log", len(content))


@plant
def zeros_in_the_middle_of_a_sealed_segment(log):
    at = log.position(f"{FIRST}.log", 2)
    log.poke(f"{FIRST}.log", at, bytes(1000))
    return Place(Rule.WHOLE_BATCHES, f"{FIRST}.log", at)


@plant
def wrong_records_under_a_right_crc(log):
    at = log.change_batch(f"{FIRST}.log", 5, lambda batch: batch.__setitem__(61, 0x7F))
    return Place(Rule.RECORDS, f"{FIRST}.log", at + 61)


@plant
def wrong_compressed_records_under_a_right_crc(log):
    def cut_stream(batch):
        batch[65:69] = GARBAGE[:4]

    at = log.change_batch(f"{FIRST}.log", 4, cut_stream)  # zstd
    return Place(Rule.RECORDS, f"{FIRST}.log", at + 61)


@plant
def fewer_records_than_offsets(log):
    at = log.change_batch(
        f"{FIRST}.log", 6, lambda batch: batch.__setitem__(slice(23, 27), struct.pack(">i", 9))
    )
    return Place(Rule.DENSE_OFFSETS, f"{FIRST}.log", at)


@plant
def a_max_timestamp_above_those_of_the_records(log):
    at = log.change_batch(f"{FIRST}.log", 3, lambda batch: batch.__setitem__(42, batch[42] ^ 0xFF))
    return Place(Rule.TIMESTAMPS, f"{FIRST}.log", at)


@plant
def a_max_timestamp_that_is_wrong_in_a_plain_batch(log):
    at = log.change_batch(f"{FIRST}.log", 5, lambda batch: batch.__setitem__(42, batch[42] ^ 0xFF))
    return Place(Rule.TIMESTAMPS, f"{FIRST}.log", at)


@plant
def an_offset_that_is_skipped_inside_a_segment(log):
    row = log.batches(f"{FIRST}.log")[7]
    at = int(row["position"])
    log.poke(f"{FIRST}.log", at, struct.pack(">q", int(row["base_offset"]) + 1))
    return Place(Rule.DENSE_OFFSETS, f"{FIRST}.log", at)


@plant
def an_offset_that_comes_twice(log):
    at = log.position(f"{FIRST}.log", 7)
    log.poke(f"{FIRST}.log", at, struct.pack(">q", 0))
    return Place(Rule.DENSE_OFFSETS, f"{FIRST}.log", at)


@plant
def offsets_that_are_missing_between_two_segments(log):
    end = log.position(f"{FIRST}.log", -1)
    log.put(f"{FIRST}.log", log.content(f"{FIRST}.log")[:end])
    return Place(Rule.DENSE_OFFSETS, f"{FIRST}.log", end)


@plant
def a_segment_under_a_wrong_name(log):
    content = log.content(f"{FIRST}.log")
    log.disk.remove(log.file(f"{FIRST}.log"))
    log.put("00000000000000000001.log", content)
    return Place(Rule.SEGMENT_NAME, "00000000000000000001.log", 0)


@plant
def a_leader_epoch_that_falls(log):
    active = log.segments()[-1]
    at = log.position(active, 1)
    log.poke(active, at + 12, struct.pack(">i", 1))
    return Place(Rule.LEADER_EPOCHS, active, at)


@plant
def a_leader_epoch_that_falls_from_one_segment_to_the_next(log):
    second = log.segments()[1]
    log.poke(f"{FIRST}.log", log.position(f"{FIRST}.log", -1) + 12, struct.pack(">i", 9))
    return Place(Rule.LEADER_EPOCHS, second, 0)


@plant
def a_segment_in_quarantine(log):
    state = log.state()
    entries = [replace(state.sealed[0], quarantined=True), *state.sealed[1:]]
    log.put(STATE_NAME, replace(state, sealed=entries).encode())
    return Place(Rule.QUARANTINE, f"{FIRST}.log", None)


@plant
def a_file_of_an_unknown_name(log):
    log.put("notes.txt", b"hello")
    return Place(Rule.KNOWN_NAME, "notes.txt", None)


# -- indexes ---------------------------------------------------------------------------------------------------


@plant
def a_flipped_bit_in_an_offset_index(log):
    log.flip(f"{FIRST}.index", 3 * OFFSET_ENTRY.itemsize + 7)
    return Place(Rule.CHECKSUM, f"{FIRST}.index", 0)


@plant
def an_index_entry_that_points_into_a_batch(log):
    log.flip(f"{FIRST}.index", 3 * OFFSET_ENTRY.itemsize + 7)
    return Place(Rule.INDEX_POINTS, f"{FIRST}.index", 3 * OFFSET_ENTRY.itemsize)


@plant
def an_index_entry_with_a_wrong_offset(log):
    log.poke(f"{FIRST}.index", 3 * OFFSET_ENTRY.itemsize + 3, b"\x12")
    return Place(Rule.INDEX_POINTS, f"{FIRST}.index", 3 * OFFSET_ENTRY.itemsize)


@plant
def index_entries_out_of_order(log):
    content, width = log.content(f"{FIRST}.index"), OFFSET_ENTRY.itemsize
    log.put(f"{FIRST}.index", content[width : 2 * width] + content[:width] + content[2 * width :])
    return Place(Rule.INDEX_ORDER, f"{FIRST}.index", width)


@plant
def half_an_entry_at_the_end_of_an_index(log):
    content = log.content(f"{FIRST}.index")
    log.put(f"{FIRST}.index", content + b"\0\0\0")
    return Place(Rule.INDEX_ORDER, f"{FIRST}.index", len(content))


@plant
def an_offset_index_that_is_missing(log):
    log.disk.remove(log.file(f"{FIRST}.index"))
    return Place(Rule.INDEXED, f"{FIRST}.index", None)


@plant
def an_offset_index_of_the_active_segment_that_is_missing(log):
    name = log.segments()[-1].replace(".log", ".index")
    log.disk.remove(log.file(name))
    return Place(Rule.INDEXED, name, None)


@plant
def an_index_of_the_active_segment_with_an_entry_too_many(log):
    name = log.segments()[-1].replace(".log", ".index")
    log.put(name, log.content(name) + struct.pack(">ii", 10_000, 10_000_000))
    return Place(Rule.CHECKSUM, name, 0)


@plant
def a_flipped_bit_in_a_time_index(log):
    log.flip(f"{FIRST}.timeindex", 7)
    return Place(Rule.CHECKSUM, f"{FIRST}.timeindex", 0)


@plant
def a_time_index_entry_with_a_wrong_timestamp(log):
    log.flip(f"{FIRST}.timeindex", 2 * TIME_ENTRY.itemsize + 7)
    return Place(Rule.TIME_INDEX_TRUE, f"{FIRST}.timeindex", 2 * TIME_ENTRY.itemsize)


@plant
def a_time_index_entry_with_a_wrong_offset(log):
    log.flip(f"{FIRST}.timeindex", 2 * TIME_ENTRY.itemsize + 11)
    return Place(Rule.TIME_INDEX_TRUE, f"{FIRST}.timeindex", 2 * TIME_ENTRY.itemsize)


@plant
def time_index_entries_out_of_order(log):
    content, width = log.content(f"{FIRST}.timeindex"), TIME_ENTRY.itemsize
    log.put(f"{FIRST}.timeindex", content[width : 2 * width] + content[:width] + content[2 * width :])
    return Place(Rule.TIME_INDEX_ORDER, f"{FIRST}.timeindex", width)


@plant
def a_time_index_without_the_highest_timestamp(log):
    content, width = log.content(f"{FIRST}.timeindex"), TIME_ENTRY.itemsize
    log.put(f"{FIRST}.timeindex", content[:-width])
    return Place(Rule.TIME_INDEX_TRUE, f"{FIRST}.timeindex", len(content) - 2 * width)


@plant
def a_time_index_that_is_missing(log):
    log.disk.remove(log.file(f"{FIRST}.timeindex"))
    return Place(Rule.INDEXED, f"{FIRST}.timeindex", None)


# -- partition.state -------------------------------------------------------------------------------------------


@plant
def a_state_that_is_missing(log):
    log.disk.remove(log.file(STATE_NAME))
    return Place(Rule.STATE, STATE_NAME, None)


@plant
def a_flipped_bit_in_the_state(log):
    log.flip(STATE_NAME, 20)
    return Place(Rule.STATE, STATE_NAME, 4)


@plant
def a_segment_that_is_listed_and_missing(log):
    log.disk.remove(log.file(f"{FIRST}.log"))
    return Place(Rule.CATALOGUE, f"{FIRST}.log", None)


@plant
def a_segment_that_is_there_and_not_listed(log):
    state = log.state()
    log.put(STATE_NAME, replace(state, sealed=state.sealed[1:]).encode())
    return Place(Rule.CATALOGUE, f"{FIRST}.log", None)


@plant
def a_catalogue_with_a_gap(log):
    state = log.state()
    entries = [replace(state.sealed[0], next_offset=state.sealed[0].next_offset - 1), *state.sealed[1:]]
    log.put(STATE_NAME, replace(state, sealed=entries).encode())
    return Place(Rule.CATALOGUE, STATE_NAME, None)


@plant
def a_segment_that_was_sealed_with_another_size(log):
    state = log.state()
    entries = [replace(state.sealed[0], bytes=state.sealed[0].bytes + 8), *state.sealed[1:]]
    log.put(STATE_NAME, replace(state, sealed=entries).encode())
    return Place(Rule.SIZE, f"{FIRST}.log", state.sealed[0].bytes)


@plant
def a_segment_that_was_sealed_with_another_end(log):
    state = log.state()
    entries = [replace(state.sealed[0], next_offset=state.sealed[0].next_offset + 1), *state.sealed[1:]]
    log.put(STATE_NAME, replace(state, sealed=entries).encode())
    return Place(Rule.NEXT_OFFSET, f"{FIRST}.log", state.sealed[0].bytes)


@plant
def a_segment_that_was_sealed_with_another_timestamp(log):
    state = log.state()
    entries = [replace(state.sealed[0], max_timestamp=5), *state.sealed[1:]]
    log.put(STATE_NAME, replace(state, sealed=entries).encode())
    return Place(Rule.MAX_TIMESTAMP, f"{FIRST}.log", None)


@plant
def an_active_segment_that_lost_what_was_flushed(log):
    active = log.segments()[-1]
    end = log.position(active, -1)
    log.put(active, log.content(active)[:end])
    return Place(Rule.SIZE, active, end)


@plant
def a_recovery_point_inside_a_batch(log):
    state, active = log.state(), log.segments()[-1]
    inside = log.position(active, -1) + 7
    log.put(STATE_NAME, replace(state, active=replace(state.active, position=inside)).encode())
    return Place(Rule.RECOVERY_POINT, active, inside)


@plant
def a_recovery_point_with_a_wrong_offset(log):
    state, active = log.state(), log.segments()[-1]
    point = replace(state.active, next_offset=state.active.next_offset + 1)
    log.put(STATE_NAME, replace(state, active=point).encode())
    return Place(Rule.NEXT_OFFSET, active, point.position)


@plant
def a_recovery_point_with_offsets_and_no_bytes(log):
    state = log.state()
    log.put(STATE_NAME, replace(state, active=replace(state.active, position=0)).encode())
    return Place(Rule.RECOVERY_POINT, STATE_NAME, None)


@plant
def a_recovery_point_with_a_wrong_timestamp(log):
    state, active = log.state(), log.segments()[-1]
    point = replace(state.active, max_timestamp=state.active.max_timestamp + 1)
    log.put(STATE_NAME, replace(state, active=point).encode())
    return Place(Rule.MAX_TIMESTAMP, active, None)


@plant
def a_recovery_point_with_the_timestamp_of_another_batch(log):
    state, active = log.state(), log.segments()[-1]
    point = replace(state.active, max_timestamp_offset=state.active.max_timestamp_offset - 4)
    log.put(STATE_NAME, replace(state, active=point).encode())
    return Place(Rule.MAX_TIMESTAMP, active, None)


@plant
def a_log_start_behind_the_end(log):
    state = log.state()
    log.put(STATE_NAME, replace(state, log_start_offset=state.active.next_offset + 1).encode())
    return Place(Rule.LOG_START, STATE_NAME, None)


@plant
def an_epoch_history_that_is_not_that_of_the_batches(log):
    state = log.state()
    epochs = [state.epochs[0], EpochStart(2, state.epochs[1].offset + 4)]
    log.put(STATE_NAME, replace(state, epochs=epochs).encode())
    return Place(Rule.EPOCH_HISTORY, STATE_NAME, None)


@plant
def an_epoch_history_that_falls(log):
    state = log.state()
    log.put(STATE_NAME, replace(state, epochs=state.epochs[::-1]).encode())
    return Place(Rule.EPOCH_HISTORY, STATE_NAME, None)


# -- snapshots of producers ------------------------------------------------------------------------------------


def _last_snapshot(log):
    return f"{log.state().active.next_offset:020d}.snapshot"


def _producer(log) -> ProducerEntry:
    """The one producer of the log, as its last batches made it."""
    entries = [
        KeptBatch(
            int(r["base_sequence"]), int(r["base_sequence"]) + 3, int(r["base_offset"]), int(r["last_offset"])
        )
        for name in log.segments()
        for r in log.batches(name)
        if r["producer_id"] >= 0
    ]
    return ProducerEntry(7, 0, entries[-5:], log.now_ms)


def _put_snapshot(log, *producers, next_offset=None):
    name = _last_snapshot(log)
    taken = log.state().active.next_offset if next_offset is None else next_offset
    log.put(name, seal(SNAPSHOT_MAGIC, (taken, list(producers))))
    return name


@plant
def a_flipped_bit_in_a_snapshot(log):
    log.flip(_last_snapshot(log), 20)
    return Place(Rule.SNAPSHOT, _last_snapshot(log), 4)


@plant
def a_snapshot_that_is_missing(log):
    log.disk.remove(log.file(_last_snapshot(log)))
    return Place(Rule.SNAPSHOT, _last_snapshot(log), None)


@plant
def a_snapshot_of_another_offset(log):
    return Place(Rule.SNAPSHOT, _put_snapshot(log, _producer(log), next_offset=4), 0)


@plant
def a_snapshot_above_the_end_of_the_log(log):
    name = "00000000000000009000.snapshot"
    log.put(name, seal(SNAPSHOT_MAGIC, (9000, [])))
    return Place(Rule.SNAPSHOT, name, None)


@plant
def a_snapshot_inside_a_batch(log):
    name = "00000000000000000006.snapshot"
    log.put(name, seal(SNAPSHOT_MAGIC, (6, [])))
    return Place(Rule.SNAPSHOT, name, None)


@plant
def a_snapshot_with_a_wrong_sequence(log):
    entry = _producer(log)
    entry.batches[-1] = replace(entry.batches[-1], base_sequence=1, last_sequence=4)
    return Place(Rule.PRODUCERS, _put_snapshot(log, entry), None)


@plant
def a_snapshot_with_a_wrong_producer_epoch(log):
    entry = _producer(log)
    entry.epoch = 3
    return Place(Rule.PRODUCERS, _put_snapshot(log, entry), None)


@plant
def a_snapshot_with_a_producer_that_never_was(log):
    stranger = ProducerEntry(8, 0, [KeptBatch(0, 3, 8, 11)], log.now_ms)
    return Place(Rule.PRODUCERS, _put_snapshot(log, _producer(log), stranger), None)


def test_the_planted_snapshot_helper_makes_one_that_is_right():
    log = closed_log()
    _put_snapshot(log, _producer(log))
    assert verify_partition(log.disk, log.path) == []


# -- logs that were not closed ---------------------------------------------------------------------------------


def _violations(log, **options):
    return [
        (f.rule, f.path, f.byte) for f in verify_partition(log.disk, log.path, **options) if f.is_violation
    ]


def test_a_broken_batch_below_the_recovery_point_is_a_violation_also_in_a_log_that_was_not_closed():
    log = crashed_log()
    active = log.segments()[-1]
    log.flip(active, 100)
    assert (Rule.WHOLE_BATCHES, log.file(active), 0) in _violations(log)


def test_a_whole_batch_further_than_one_write_reaches_behind_a_broken_one_is_a_violation():
    log = crashed_log()
    state, active = log.state(), log.segments()[-1]
    log.put(STATE_NAME, replace(state, reach_bytes=1000).encode())
    broken = int(log.batches(active)["position"].searchsorted(state.active.position))
    at = log.position(active, broken)
    log.flip(active, at + 100)
    assert _violations(log) == [(Rule.END, log.file(active), at)]


def test_an_end_that_the_next_segment_does_not_continue_is_a_violation():
    log = crashed_log()
    state = log.state()
    # As after a crash before the second segment was sealed: the state knows of the first one only.
    second = int(log.segments()[1][:20])
    point = replace(state.active, base_offset=second, next_offset=second, position=0, max_timestamp=-1)
    saved = replace(point.indexes, index_entries=0, index_crc=0, time_index_entries=0, time_index_crc=0)
    point = replace(point, max_timestamp_offset=second, indexes=saved)
    epochs = [start for start in state.epochs if start.offset < second]
    log.put(
        STATE_NAME,
        replace(state, active=point, sealed=state.sealed[:1], epochs=epochs, has_producers=False).encode(),
    )
    assert _violations(log) == []
    last = log.position(log.segments()[1], -1)
    log.flip(log.segments()[1], last + 100)
    assert (Rule.DENSE_OFFSETS, log.file(log.segments()[1]), last) in _violations(log)


# -- compacted logs --------------------------------------------------------------------------------------------


def _compacted() -> SampleLog:
    """A log without a state, whose second batch compaction took away."""
    log = SampleLog()
    log.close()
    for name in log.names():
        log.disk.remove(log.file(name))
    first, third = (encode([b"a", b"b"], timestamps=1, base_offset=at, leader_epoch=0) for at in (10, 20))
    log.put("00000000000000000008.log", first + third)
    log.put(f"{STATE_NAME}.bad", b"")
    return log


def test_offsets_may_skip_only_where_the_log_is_compacted():
    log = _compacted()
    assert _violations(log, compacted=True) == []
    # Without a state every byte is above the recovery point, where a gap ends the log.
    notes = verify_partition(log.disk, log.path)
    assert (Rule.END, 0) in [(f.rule, f.byte) for f in notes]


def test_offsets_that_fall_are_a_violation_also_where_the_log_is_compacted():
    log = closed_log()
    at = log.position(f"{FIRST}.log", 7)
    log.poke(f"{FIRST}.log", at, struct.pack(">q", 0))
    assert (Rule.RISING_OFFSETS, log.file(f"{FIRST}.log"), at) in _violations(log, compacted=True)
