"""A walk shows all of a segment file, whatever is in it: whole batches, broken bytes, zeros, and no byte twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlog.limits import BATCH_BYTES_MAX, MIB
from ringlog.log.dump import dump_file, segment_paths
from ringlog.log.walk import Broken, Run, Zeros, walk
from ringlog.records.encode import encode
from ringlog.records.scan import scan
from tests.support.fake_disk import FakeDisk

PATH = "/data/orders-0/00000000000000000000.log"


def _walk(content: bytes):
    disk = FakeDisk()
    disk.put(PATH, content)
    shown = [
        (type(item), item.position, item.end, len(item.table) if isinstance(item, Run) else 0)
        for item in walk(disk, PATH)
    ]
    assert disk.open_paths == []
    return shown


def _batch(offset: int, value_bytes: int = 10) -> bytes:
    return bytes(encode([b"v" * value_bytes], timestamps=1, base_offset=offset))


def test_an_empty_file_shows_nothing():
    assert _walk(b"") == []


def test_zeros_alone_are_space():
    assert _walk(bytes(5000)) == [(Zeros, 0, 5000, 0)]


def test_broken_bytes_reach_to_the_next_whole_batch():
    one, two = _batch(0), _batch(1)
    content = one + b"garbage" + two + two
    assert _walk(content) == [
        (Run, 0, len(one), 1),
        (Broken, len(one), len(one) + 7, 0),
        (Run, len(one) + 7, len(content), 2),
    ]


def test_a_torn_batch_and_the_space_behind_it_are_told_apart():
    one, torn = _batch(0), _batch(1, 3000)[:1000]
    content = one + torn + bytes(9000)
    assert _walk(content) == [
        (Run, 0, len(one), 1),
        (Broken, len(one), len(one) + 1000, 0),
        (Zeros, len(one) + 1000, len(content), 0),
    ]


def test_a_batch_with_a_wrong_crc_says_what_it_claims_to_be():
    content = bytearray(_batch(0) + _batch(7))
    content[len(content) - 5] ^= 1
    disk = FakeDisk()
    disk.put(PATH, content)
    broken = list(walk(disk, PATH))[-1]
    assert isinstance(broken, Broken)
    assert (int(broken.header["base_offset"]), broken.fault.field) == (7, "crc")
    assert broken.end == len(content)  # with the zero that ends every record without headers


@pytest.mark.parametrize("value_bytes", [4 * MIB - 100, 5 * MIB, 20 * MIB])
def test_a_batch_larger_than_a_window_is_shown_in_one_piece(value_bytes):
    small, large = _batch(0), _batch(1, value_bytes)
    shown = _walk(small + large + small)
    assert [item[0] for item in shown] == [Run] * len(shown)
    assert sum(item[3] for item in shown) == 3


def test_a_batch_behind_more_garbage_than_memory_holds_is_found():
    gap = BATCH_BYTES_MAX + 6 * MIB
    last = _batch(9)
    assert _walk(b"\x02" * gap + last) == [(Broken, 0, gap, 0), (Run, gap, gap + len(last), 1)]


def test_a_file_that_becomes_shorter_ends_where_it_ends():
    disk = FakeDisk()
    batch = _batch(0, MIB)
    disk.put(PATH, batch * 12)
    items = walk(disk, PATH)
    first = next(items)
    disk.put(PATH, batch * 5)
    assert [type(first), *(type(item) for item in items)] == [Run, Run]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(0, 200).map(lambda size: _batch(size, size)),
            st.binary(max_size=80),
            st.integers(0, 100).map(bytes),
        ),
        max_size=8,
    )
)
def test_a_walk_covers_any_file_without_gaps_and_its_runs_are_right(parts):
    content = b"".join(parts)
    disk = FakeDisk()
    disk.put(PATH, content)
    position = 0
    for item in walk(disk, PATH):
        assert item.position == position < item.end
        position = item.end
        if isinstance(item, Run):
            assert bytes(item.data) == content[item.position : item.end]
            assert scan(item.data, level="crc").fault is None
        else:
            assert scan(content[item.position : item.end], level="crc").end == 0
    assert position == len(content)


def test_segments_that_end_before_an_offset_are_left_out():
    disk = FakeDisk()
    for base in (10, 20, 30):
        disk.put(f"/data/orders-0/{base:020d}.log", _batch(base))
    disk.put("/data/orders-0/00000000000000000005.log.cut", b"")

    def bases(from_offset):
        return [int(path[-24:-4]) for path in segment_paths(disk, "/data/orders-0", from_offset)]

    assert [bases(0), bases(20), bases(29), bases(99)] == [[10, 20, 30], [20, 30], [20, 30], [30]]


def test_a_small_file_that_is_far_too_long_is_not_read():
    disk = FakeDisk()
    disk.put("/data/orders-0/partition.state", bytes(65 * MIB))
    reads = len([call for call in disk.calls if call.kind == "read"])
    lines = list(dump_file(disk, "/data/orders-0/partition.state"))
    assert [type(line).__name__ for line in lines] == ["Unreadable"]
    assert len([call for call in disk.calls if call.kind == "read"]) == reads
