"""CRC32C and murmur2: known vectors, and equality with their slow twins."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import InvalidRequest
from ringlog.native import _kernel
from ringlog.records.partitioner import partition_column, partition_for
from tests.support.twins import crc32c as crc_twin
from tests.support.twins import murmur2 as murmur_twin

# RFC 3720, appendix B.4, and the check value of the CRC catalogues.
CRC_VECTORS = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
]

# The values that Kafka's own tests hold its hash to.
MURMUR_VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("data", "crc"), CRC_VECTORS)
def test_crc32c_has_the_known_values(data, crc):
    assert _kernel.crc32c(data) == _kernel.crc32c_portable(data) == crc_twin.crc32c(data) == crc


@pytest.mark.parametrize(("key", "value"), MURMUR_VECTORS)
def test_murmur2_has_the_values_of_kafka(key, value):
    assert _kernel.murmur2(key) == murmur_twin.murmur2(key) == value


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1))
def test_crc32c_equals_its_twin_for_any_bytes_and_seed(data, seed):
    assert _kernel.crc32c(data, seed) == _kernel.crc32c_portable(data, seed) == crc_twin.crc32c(data, seed)


@pytest.mark.parametrize("size", [767, 768, 769, 1543, 4095, 12_287, 12_288, 12_289, 13_056, 24_577, 100_003])
def test_crc32c_joins_its_three_streams_at_every_block_size(size):
    data = np.random.default_rng(size).bytes(size + 8)
    for begin in (0, 1, 7):
        assert _kernel.crc32c_unfolded(data[begin:]) == _kernel.crc32c_portable(data[begin:])


@pytest.mark.parametrize(
    "size", [1023, 1024, 1025, 1087, 1088, 1279, 1280, 1281, 1536, 4095, 65_536, 100_003]
)
def test_crc32c_folds_to_the_same_value_at_every_block_size(size):
    data = np.random.default_rng(size).bytes(size + 64)
    for begin, seed in ((0, 0), (1, 17), (63, 2**32 - 1)):
        part = memoryview(data)[begin : begin + size]
        assert _kernel.crc32c(part, seed) == _kernel.crc32c_portable(part, seed)


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_crc32c_goes_on_from_what_came_before(first, second):
    assert _kernel.crc32c(second, _kernel.crc32c(first)) == _kernel.crc32c(first + second)


def test_crc32c_takes_any_contiguous_buffer():
    data = bytes(range(200))
    wanted = _kernel.crc32c(data)
    with mmap.mmap(-1, 200) as mapped:
        mapped[:] = data
        assert _kernel.crc32c(mapped) == wanted
    for buffer in (bytearray(data), memoryview(data), np.frombuffer(data, dtype=np.int64)):
        assert _kernel.crc32c(buffer) == wanted


def test_crc32c_refuses_a_buffer_with_gaps():
    with pytest.raises((BufferError, ValueError)):
        _kernel.crc32c(memoryview(bytes(10))[::2])


def test_the_path_in_use_is_named():
    assert _kernel.crc32c_path() in ("avx512", "sse4.2", "armv8", "portable")


@given(st.binary(max_size=70))
def test_murmur2_equals_its_twin(key):
    assert _kernel.murmur2(key) == murmur_twin.murmur2(key)


@given(st.lists(st.binary(max_size=9), max_size=20), st.integers(1, 1000), st.sampled_from(("i4", "i8")))
def test_a_column_of_keys_is_partitioned_as_its_keys_are(keys, partitions, width):
    offsets = np.cumsum([0, *map(len, keys)]).astype(width)
    column = partition_column(offsets, b"".join(keys), partitions)
    assert column.dtype == np.int32
    assert column.tolist() == [partition_for(key, partitions) for key in keys]
    assert column.tolist() == [murmur_twin.partition_for(key, partitions) for key in keys]


@pytest.mark.parametrize("offsets", [[0, 5], [-1, 2], [2, 1], [0, 2**31 - 1]])
def test_offsets_that_lead_out_of_the_data_are_refused(offsets):
    with pytest.raises(InvalidRequest):
        partition_column(np.array(offsets, dtype=np.int32), b"four", 3)


@pytest.mark.parametrize(
    "offsets", [np.zeros(2), np.zeros((2, 2), dtype=np.int32), np.zeros(0, dtype=np.int32)]
)
def test_offsets_of_another_kind_are_refused(offsets):
    with pytest.raises(InvalidRequest):
        partition_column(offsets, b"four", 3)


@pytest.mark.parametrize("partitions", [0, -1])
def test_partitions_must_be_positive(partitions):
    with pytest.raises(InvalidRequest):
        partition_for(b"key", partitions)
    with pytest.raises(InvalidRequest):
        partition_column(np.array([0, 1], dtype=np.int32), b"k", partitions)
