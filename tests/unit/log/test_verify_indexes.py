"""Violations in offset and time indexes: each is reported under its rule and at its place."""

from __future__ import annotations

import struct

import pytest

from ringlog.log.findings import Rule
from ringlog.log.index import OFFSET_ENTRY, TIME_ENTRY
from tests.support.planted import FIRST, Place, Plants, expect_report

plant = Plants()


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


@pytest.mark.parametrize("damage", plant.all, ids=lambda damage: damage.__name__)
def test_a_planted_violation_is_reported_at_its_place(damage):
    expect_report(damage)
