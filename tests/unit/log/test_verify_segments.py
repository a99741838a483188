"""Violations in segment files: each is reported under its rule and at its place."""

from __future__ import annotations

import struct

import pytest
from msgspec.structs import replace

from ringlog.log.findings import Rule
from ringlog.log.names import STATE_NAME
from tests.support.planted import FIRST, GARBAGE, Place, Plants, expect_report

plant = Plants()


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


@pytest.mark.parametrize("damage", plant.all, ids=lambda damage: damage.__name__)
def test_a_planted_violation_is_reported_at_its_place(damage):
    expect_report(damage)
