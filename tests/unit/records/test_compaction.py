"""Compaction of batches: native and twin agree, offsets stay, and nothing but what is superseded goes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import CorruptBatch
from ringlog.model import Codec
from ringlog.records.compaction import OffsetMap, Rules, filter_batches, note
from ringlog.records.decode import decode
from ringlog.records.encode import encode
from ringlog.records.scan import check
from tests.support.batches import reseal, sparse_batches
from tests.support.twins import compaction as twin

SEED = bytes(range(16))
NONE_LIVE = np.empty(0, np.int64)


def filtered(keys, data, *, end_offset=10**9, drop_tombstones=False, live=NONE_LIVE):
    out = memoryview(bytearray(len(data)))
    kept = filter_batches(keys, data, check(data, level="crc"), Rules(end_offset, drop_tombstones, live), out)
    return bytes(out[: kept.nbytes]), kept.changed


def map_of(data, start_offset=0, nbytes=64 * 1024):
    keys = OffsetMap(nbytes, SEED)
    assert note(keys, data, check(data, level="crc"), start_offset) is None
    return keys


@st.composite
def logs(draw):
    """Batches with gaps at rising offsets, with few keys, so that many records are superseded."""
    data, offset = b"", draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 5))):
        batch = draw(sparse_batches(offset))
        data += batch
        offset += int(check(batch)["last_offset"][0]) - offset + 1
    return data


@given(
    logs(),
    st.integers(0, 500),
    st.integers(0, 2000),
    st.booleans(),
    st.sets(st.integers(0, 1500)),
    st.integers(1, 40),
)
def test_both_passes_do_what_their_twin_does(data, start, end, drop, live, slots):
    keys, expected = OffsetMap(24 * slots, SEED), {}
    found = note(keys, data, check(data), start)
    assert found == twin.note(data, start, expected, keys.capacity)
    assert keys.size == len(expected)
    assert all(keys.get(key) == offset for key, offset in expected.items())
    sorted_live = np.array(sorted(live), np.int64)
    left, changed = filtered(keys, data, end_offset=end, drop_tombstones=drop, live=sorted_live)
    assert left == twin.filter_batches(data, expected, end, drop, live)
    assert changed == (left != data)
    if left:
        check(left, expected_offset=int(check(data)["base_offset"][0]), dense=False)


@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 2**62))), st.integers(1, 30))
def test_the_map_is_a_dict_that_keeps_the_highest_offset(puts, slots):
    keys, expected = OffsetMap(24 * slots, SEED), {}
    for key, offset in puts:
        fits = key in expected or len(expected) < keys.capacity
        assert keys.put(key, offset) == fits
        if fits:
            expected[key] = max(expected.get(key, -1), offset)
    assert keys.size == len(expected)
    for key, _ in puts:
        assert keys.get(key) == expected.get(key, -1)


def test_the_hash_is_siphash_of_its_authors():
    # The first vectors that come with the reference implementation: seed 0..15, input 0..n-1.
    assert twin.siphash128(b"", SEED).hex() == "a3817f04ba25a8e66df67214c7550293"
    assert twin.siphash128(bytes([0]), SEED).hex() == "da87c1d86b99af44347659119b22fc45"


def test_of_each_key_the_latest_record_stays_at_its_offset():
    data = encode([b"1", b"2"], keys=[b"a", b"b"], timestamps=5) + encode(
        [b"3"], keys=[b"a"], timestamps=6, base_offset=2
    )
    left, changed = filtered(map_of(data), data)
    assert [(r.offset, r.key, r.value, r.timestamp) for r in decode(left)] == [
        (1, b"b", b"2", 5),
        (2, b"a", b"3", 6),
    ]
    assert changed
    assert check(left)["base_offset"].tolist() == [0, 2]
    assert check(left)["last_offset"].tolist() == [1, 2]


def test_batches_that_lose_nothing_are_the_same_bytes():
    data = encode([b"1", b"2"], keys=[b"a", b"b"], timestamps=5)
    assert filtered(map_of(data), data) == (bytes(data), False)


def test_records_without_a_key_stay():
    data = encode([b"1", b"2"], timestamps=5)
    assert filtered(map_of(data), data) == (bytes(data), False)


def test_a_tombstone_stays_until_its_time_is_over():
    data = encode([b"1", None], keys=[b"a", b"a"], timestamps=5)
    keys = map_of(data)
    assert [r.value for r in decode(filtered(keys, data)[0])] == [None]
    assert filtered(keys, data, drop_tombstones=True) == (b"", True)


def test_records_beyond_the_end_of_the_map_stay():
    data = encode([b"1", b"2", b"3"], keys=[b"a"] * 3, timestamps=5)
    keys = map_of(data)
    assert [r.offset for r in decode(filtered(keys, data, end_offset=1)[0])] == [1, 2]


def test_an_empty_batch_stays_for_a_live_producer_and_keeps_its_sequence():
    first = encode([b"1"], keys=[b"a"], timestamps=5, producer_id=7, producer_epoch=1, base_sequence=3)
    data = first + encode([b"2"], keys=[b"a"], timestamps=5, base_offset=1)
    left, _ = filtered(map_of(data), data, live=np.array([0], np.int64))
    table = check(left)
    assert table["record_count"].tolist() == [0, 1]
    assert (table["producer_id"][0], table["producer_epoch"][0], table["base_sequence"][0]) == (7, 1, 3)
    again, changed = filtered(map_of(left), left, live=np.array([0], np.int64))
    assert (again, changed) == (left, False)
    assert check(filtered(map_of(left), left)[0])["record_count"].tolist() == [1]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_compressed_batch_stays_compressed_as_it_was(codec):
    values = [b"%d" % number * 50 for number in range(100)]
    packed = encode(values, keys=[b"k%d" % (n % 60) for n in range(100)], timestamps=5, codec=codec)
    plain = encode([b"x"], keys=[b"k59"], timestamps=6, base_offset=100)
    data = packed + plain
    left, changed = filtered(map_of(data), data)
    assert changed
    assert (check(left)["attributes"] & 7).tolist() == [codec, 0]
    assert [r.offset for r in decode(left)] == [n for n in range(40, 100) if n != 59] + [100]
    assert next(r.value for r in decode(left)) == values[40]
    whole, changed = filtered(OffsetMap(1024, SEED), data)
    assert (whole, changed) == (bytes(data), False)


def test_a_compressed_batch_that_cannot_be_read_stays_as_its_producer_sent_it():
    good = encode([b"1"], keys=[b"a"], timestamps=0)
    bad = bytearray(encode([b"x" * 500], keys=[b"a"], timestamps=0, base_offset=1, codec=Codec.ZSTD))
    bad[70:80] = bytes(10)
    reseal(bad)
    data = good + bad
    left, changed = filtered(map_of(data), data)
    assert (left, changed) == (bytes(data), False)


def test_a_full_map_says_from_where_on_it_knows_nothing():
    data = encode([b""] * 10, keys=[b"%d" % n for n in range(10)], timestamps=0)
    keys = OffsetMap(24 * 8, SEED)
    assert keys.capacity == 6
    assert note(keys, data, check(data), 0) == 6


def test_records_that_are_not_right_are_refused():
    data = bytearray(encode([b"value"], keys=[b"key"], timestamps=0))
    table = check(data)
    data[61] ^= 0x40
    keys = OffsetMap(1024, SEED)
    with pytest.raises(CorruptBatch):
        note(keys, data, table, 0)
    with pytest.raises(CorruptBatch):
        filtered_rows(keys, data, table)


def filtered_rows(keys, data, table):
    out = memoryview(bytearray(len(data)))
    return filter_batches(keys, data, table, Rules(10, False, NONE_LIVE), out)


def test_out_that_is_too_small_is_refused_before_a_byte_is_written():
    data = encode([b"value"], keys=[b"key"], timestamps=0)
    keys, out = OffsetMap(1024, SEED), memoryview(bytearray(len(data) - 1))
    with pytest.raises(ValueError, match="too small"):
        filter_batches(keys, data, check(data), Rules(10, False, NONE_LIVE), out)
