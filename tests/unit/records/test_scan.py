"""Scan, check, find and stamp: equal to their twins on any bytes, and what each promises."""

from __future__ import annotations

import mmap
import struct
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlog import limits
from ringlog.errors import CorruptBatch, InvalidRequest
from ringlog.model import Codec
from ringlog.native import _kernel
from ringlog.records.encode import encode, encode_empty
from ringlog.records.format import BATCH_TABLE
from ringlog.records.scan import check, copy_checked, find_batch, scan, stamp
from tests.support.batches import buffers, reseal, tampered
from tests.support.twins import batch as twin


def batch_at(offset: int, *, epoch: int = 0, count: int = 3) -> bytearray:
    return encode([b"value"] * count, timestamps=1000, base_offset=offset, leader_epoch=epoch)


def rows_of(scanned: twin.Scanned) -> list[tuple[int, ...]]:
    """What the table must hold for what the twin found."""
    return [
        (
            at,
            h.base_offset,
            h.base_offset + h.last_offset_delta,
            h.base_timestamp,
            h.max_timestamp,
            h.producer_id,
            h.batch_length + 12,
            h.leader_epoch,
            h.base_sequence,
            h.record_count,
            h.producer_epoch,
            h.attributes,
            h.crc,
        )
        for at, h in scanned.batches
    ]


@settings(max_examples=400)
@given(
    tampered() | st.binary(max_size=200),
    st.sampled_from(("headers", "crc", "full")),
    st.none() | st.integers(0, 3),
    st.booleans(),
    st.sampled_from((-1, 0, 2)),
    st.booleans(),
)
def test_scan_equals_its_twin_on_any_bytes(data, level, expected_offset, dense, min_epoch, gapless):
    found = scan(
        data, level=level, expected_offset=expected_offset, dense=dense, min_epoch=min_epoch, gapless=gapless
    )
    wanted = twin.scan(data, twin.Rules(level, expected_offset, dense, min_epoch, gapless))
    assert [tuple(row) for row in found.table.tolist()] == rows_of(wanted)
    assert found.end == wanted.end
    if wanted.refused is None:
        assert found.fault is None
        assert not found.incomplete
    else:
        assert found.fault is not None
        assert (found.fault.field, found.fault.position) == (wanted.refused.name, wanted.refused.position)
        assert found.incomplete == wanted.refused.incomplete


@given(buffers())
def test_check_accepts_what_is_right(data):
    assert check(data).tolist() == scan(data).table.tolist()


@given(tampered())
def test_check_raises_what_scan_reports(data):
    fault = scan(data).fault
    if fault is None:
        check(data)
        return
    with pytest.raises(CorruptBatch) as raised:
        check(data)
    assert (raised.value.field, raised.value.position) == (fault.field, fault.position)


@settings(deadline=None)
@given(data=buffers() | tampered(), cuts=st.lists(st.floats(0, 1), max_size=3))
def test_a_checked_copy_equals_a_check_and_a_copy(data, cuts):
    copy = memoryview(bytearray(len(data)))
    ends = [0, *sorted(int(cut * len(data)) for cut in cuts), len(data)]
    pieces = [copy[start:end] for start, end in pairwise(ends)]
    try:
        check(data, level="crc")
    except CorruptBatch as fault:
        with pytest.raises(CorruptBatch) as raised:
            copy_checked(pieces, data)
        assert str(raised.value) == str(fault)
    else:
        copy_checked(pieces, data)
        assert copy == data


def test_a_checked_copy_is_as_large_as_what_is_copied():
    batch = encode([b"a"], timestamps=0)
    for nbytes in (0, len(batch) - 1, len(batch) + 1):
        with pytest.raises(ValueError, match="as large"):
            copy_checked([memoryview(bytearray(nbytes))], batch)


def test_the_table_has_the_layout_that_others_rely_on():
    assert BATCH_TABLE.itemsize == 72
    row = check(
        encode(
            [b"a", b"b"],
            timestamps=[50, 70],
            base_offset=9,
            leader_epoch=2,
            producer_id=11,
            producer_epoch=3,
            base_sequence=4,
            transactional=True,
        )
    )[0]
    assert row["base_offset"] == 9
    assert row["last_offset"] == 10
    assert (row["base_timestamp"], row["max_timestamp"]) == (50, 70)
    assert (row["producer_id"], row["producer_epoch"], row["base_sequence"]) == (11, 3, 4)
    assert (row["leader_epoch"], row["record_count"], row["attributes"]) == (2, 2, 1 << 4)


def test_native_bounds_are_those_of_limits():
    for name in (
        "BATCH_BYTES_MAX",
        "RECORDS_PER_BATCH_MAX",
        "HEADERS_PER_RECORD_MAX",
        "DECOMPRESSED_BYTES_MAX",
    ):
        assert getattr(_kernel, name) == getattr(limits, name)
    assert twin.HEADER.size == limits.BATCH_HEADER_BYTES


def test_a_batch_cut_at_any_byte_is_incomplete_and_the_one_before_it_stays():
    first, second = batch_at(0), batch_at(3)
    for cut in range(1, len(second)):
        found = scan(first + second[:cut], expected_offset=0)
        assert found.end == len(first)
        assert len(found.table) == 1
        assert found.incomplete


def test_an_implausible_field_is_a_fault_even_when_the_batch_is_cut_off():
    batch = batch_at(0)
    batch[16] = 1
    found = scan(batch[:40])
    assert not found.incomplete
    assert found.fault is not None
    assert found.fault.field == "magic"


def test_any_flipped_bit_under_the_crc_is_found():
    batch = batch_at(0)
    for bit in range(17 * 8, len(batch) * 8):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        assert scan(flipped).fault is not None


def test_offsets_must_follow_each_other_in_a_dense_log():
    data = batch_at(5) + batch_at(9)
    fault = scan(data, expected_offset=5).fault
    assert fault is not None
    assert (fault.field, fault.position) == ("base_offset", len(batch_at(5)))
    assert scan(data, expected_offset=5, dense=False).fault is None


def test_offsets_never_go_back_even_in_a_sparse_log():
    assert scan(batch_at(5) + batch_at(7), expected_offset=5, dense=False).fault is not None
    assert scan(batch_at(5), expected_offset=6, dense=False).fault is not None


def test_leader_epochs_never_go_back():
    data = batch_at(0, epoch=4) + batch_at(3, epoch=3)
    assert scan(data, expected_offset=0).end == len(batch_at(0))
    assert scan(data, expected_offset=0, min_epoch=5).end == 0
    assert scan(data).fault is None


def test_gapless_refuses_what_only_compaction_makes():
    empty = encode_empty(base_offset=0, last_offset=5)
    assert scan(empty).fault is None
    fault = scan(empty, gapless=True).fault
    assert fault is not None
    assert fault.field == "record_count"


def test_a_batch_larger_than_allowed_is_refused_by_its_length_alone():
    header = struct.pack(">qi", 0, 1000)
    fault = scan(header, bytes_max=1011).fault
    assert fault is not None
    assert fault.field == "batch_length"
    assert scan(header, bytes_max=1012).incomplete


def test_the_level_says_how_far_a_batch_is_checked():
    wrong_crc = batch_at(0)
    wrong_crc[-1] ^= 1
    assert scan(wrong_crc, level="headers").fault is None
    assert scan(wrong_crc, level="crc").fault is not None
    wrong_record = batch_at(0)
    wrong_record[61] = 0xFE  # the first record's length
    reseal(wrong_record)
    assert scan(wrong_record, level="crc").fault is None
    assert scan(wrong_record, level="full").fault is not None


def test_records_of_compressed_batches_are_left_to_the_decoder():
    batch = encode([b"x" * 100], timestamps=0, codec=Codec.ZSTD)
    batch[70] ^= 0xFF
    reseal(batch)
    assert scan(batch, level="full").fault is None


def test_any_buffer_is_scanned_without_a_copy():
    data = bytes(batch_at(0))
    with mmap.mmap(-1, len(data)) as mapped:
        mapped[:] = data
        assert len(check(mapped)) == 1
    for buffer in (bytearray(data), memoryview(data), np.frombuffer(data, dtype=np.uint8)):
        assert len(check(buffer)) == 1


def test_a_negative_expected_offset_is_the_callers_fault():
    with pytest.raises(InvalidRequest):
        scan(b"", expected_offset=-5)
    with pytest.raises(InvalidRequest):
        check(b"", expected_offset=-5)


# -- find --------------------------------------------------------------------------------------------------


@given(tampered(), st.binary(max_size=30), st.integers(0, 40), st.integers(-1, 3))
def test_find_equals_its_twin(data, noise, start, min_offset):
    data = noise + data
    assert find_batch(data, start, min_offset=min_offset) == twin.find_batch(data, start, min_offset)


def test_find_skips_zeros_at_the_speed_of_memory():
    zeros = np.zeros(64 * limits.MIB, dtype=np.uint8)
    zeros[-200 : -200 + len(batch_at(7))] = np.frombuffer(batch_at(7), dtype=np.uint8)
    began = time.perf_counter()
    assert find_batch(zeros, 0, min_offset=0) == len(zeros) - 200
    assert time.perf_counter() - began < 1.0  # byte by byte it would take many times that


def test_find_costs_one_pass_even_when_everything_looks_like_a_header():
    # 120,000 headers, each of which claims a batch of some megabytes.
    header = bytes(twin.HEADER.pack(0, 3 * limits.MIB, 0, 2, 1, 1, 0, 0, 0, -1, -1, -1, 1))
    data = header * 120_000
    began = time.perf_counter()
    assert find_batch(data, 0, min_offset=0) == -1
    assert time.perf_counter() - began < 3.0  # a CRC over each claim would take many times that


def test_find_wants_offsets_from_the_given_one_on():
    data = batch_at(3) + batch_at(6)
    assert find_batch(data, 0, min_offset=4) == len(batch_at(3))
    assert find_batch(data, 0, min_offset=7) == -1


def test_find_passes_over_a_batch_with_a_wrong_crc():
    broken = batch_at(0)
    broken[-1] ^= 1
    assert find_batch(broken + batch_at(3), 0, min_offset=0) == len(broken)


def test_find_from_behind_the_end_finds_nothing():
    assert find_batch(batch_at(0), 10**6, min_offset=0) == -1
    with pytest.raises(InvalidRequest):
        find_batch(batch_at(0), -1, min_offset=0)


# -- stamp -------------------------------------------------------------------------------------------------


@given(
    tampered(),
    st.integers(0, 2**40) | st.integers(2**63 - 500, 2**63 - 1),
    st.integers(-1, 9),
    st.none() | st.integers(0, 2**41),
)
def test_stamp_equals_its_twin(data, base_offset, leader_epoch, append_time_ms):
    stamped = bytearray(data)
    keywords = {"base_offset": base_offset, "leader_epoch": leader_epoch, "append_time_ms": append_time_ms}
    try:
        wanted, next_offset = twin.stamp(data, base_offset, leader_epoch, append_time_ms)
    except twin.Refused as refused:
        with pytest.raises(CorruptBatch) as raised:
            stamp(stamped, **keywords)
        assert (raised.value.field, raised.value.position) == (refused.name, refused.position)
        assert stamped == data  # nothing was changed
    else:
        assert stamp(stamped, **keywords) == next_offset
        assert stamped == wanted


@given(buffers())
def test_stamped_batches_are_still_right(data):
    stamped = bytearray(data)
    next_offset = stamp(stamped, base_offset=100, leader_epoch=7, append_time_ms=12345)
    table = check(stamped, expected_offset=100, min_epoch=7)
    assert next_offset == (table["last_offset"][-1] + 1 if len(table) else 100)
    assert set(table["max_timestamp"].tolist()) <= {12345}


def test_stamp_needs_memory_that_it_may_write():
    with pytest.raises((BufferError, TypeError)):
        stamp(bytes(batch_at(0)), base_offset=0, leader_epoch=0)


@pytest.mark.parametrize(("base_offset", "leader_epoch"), [(-1, 0), (0, -2)])
def test_stamp_refuses_impossible_stamps(base_offset, leader_epoch):
    with pytest.raises(InvalidRequest):
        stamp(batch_at(0), base_offset=base_offset, leader_epoch=leader_epoch)
