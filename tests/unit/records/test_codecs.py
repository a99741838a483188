"""Codecs: what is folded comes back, in the framings that Kafka reads, and bombs and garbage cost little."""

from __future__ import annotations

import struct

import cramjam
import lz4.frame
import numpy as np
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ringlog import limits
from ringlog.errors import CorruptBatch, InvalidRequest
from ringlog.model import Codec
from ringlog.native import _kernel
from ringlog.records import codecs
from ringlog.records.decode import decode, decode_columns
from ringlog.records.encode import encode
from ringlog.records.scan import check
from tests.support.memory import peak_bytes
from tests.support.twins import batch as twin
from tests.support.twins import varint

FOLDING = [codec for codec in Codec if codec is not Codec.NONE]
folding = pytest.mark.parametrize("codec", FOLDING, ids=lambda codec: codec.name.lower())


def batch_of(codec: Codec, payload: bytes, *, record_count: int = 1) -> bytearray:
    """A batch that claims so many records and holds a payload of our choice."""
    likeness = encode([b""] * record_count, timestamps=0)
    return _kernel.fold(likeness, payload, codec)


def unfold(codec: Codec, payload: bytes, *, record_count: int = 1) -> bytes:
    batch = batch_of(codec, payload, record_count=record_count)
    return bytes(codecs.unfold(payload, check(batch)[0]))


def fold_zeros(codec: Codec, size: int) -> bytes:
    """Zeros that unfold to far more than they take, without ever having been in memory at once."""
    if codec is Codec.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(bytes(64 * limits.KIB)))
        return codecs._XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * (size // (64 * limits.KIB))
    compressor = {
        Codec.GZIP: cramjam.gzip.Compressor,
        Codec.LZ4: cramjam.lz4.Compressor,
        Codec.ZSTD: cramjam.zstd.Compressor,
    }[codec]()
    for _ in range(size // limits.MIB):
        compressor.compress(bytes(limits.MIB))
    return bytes(compressor.finish())


@folding
@pytest.mark.parametrize("count", [1, 100, 30_000])
def test_records_come_back_from_every_codec(codec, count):
    values = [b"value number %d" % i for i in range(count)]
    batch = encode(values, timestamps=0, codec=codec)
    assert [record.value for record in decode(batch)] == values


@folding
def test_records_much_larger_than_the_input_come_back(codec):
    values = [bytes(3 * limits.MIB), b"between", bytes(limits.MIB)]
    batch = encode(values, timestamps=0, codec=codec)
    assert len(batch) < limits.MIB
    assert [record.value for record in decode(batch)] == values


@folding
def test_many_small_records_that_compress_well_come_back(codec):
    batch = encode([b"the same"] * 200_000, timestamps=0, codec=codec)
    assert len(decode(batch)) == 200_000


@folding
@given(data=st.binary(max_size=2000))
def test_folding_is_undone_by_unfolding(codec, data):
    value = encode([data], timestamps=0)[61:]
    assert unfold(codec, bytes(codecs.fold(codec, value))) == value


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 1), (Codec.LZ4, 9), (Codec.ZSTD, 12)])
def test_a_level_is_passed_on(codec, level):
    rng = np.random.default_rng(1)
    values = [bytes(rng.integers(97, 103, 40, dtype=np.uint8)) for _ in range(2000)]
    plain, levelled = (encode(values, timestamps=0, codec=codec, level=at) for at in (None, level))
    assert len(plain) != len(levelled)
    assert [record.value for record in decode(levelled)] == values


def test_there_is_nothing_to_fold_without_a_codec():
    with pytest.raises(InvalidRequest):
        codecs.fold(Codec.NONE, b"")


# -- framings ----------------------------------------------------------------------------------------------


def test_lz4_frames_have_independent_blocks():
    frame = bytes(codecs.fold(Codec.LZ4, bytes(200_000)))
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20, "Kafka's Java reader refuses frames whose blocks depend on each other"
    assert lz4.frame.get_frame_info(frame)["block_linked"] is False


@pytest.mark.parametrize("linked", [False, True])
def test_lz4_frames_of_others_are_read_with_linked_blocks_too(linked):
    value = encode([bytes(range(256)) * 1000], timestamps=0)[61:]
    assert unfold(Codec.LZ4, lz4.frame.compress(value, block_linked=linked)) == value


def test_snappy_is_framed_as_xerial_does():
    payload = bytes(codecs.fold(Codec.SNAPPY, b"a" * 40_000))
    assert payload[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    size = int.from_bytes(payload[16:20], "big")
    assert snappy.uncompress(payload[20 : 20 + size]) == b"a" * 32_768
    assert snappy.uncompress(payload[24 + size :]) == b"a" * 7_232


def test_snappy_without_a_frame_is_read():
    value = encode([b"value" * 100], timestamps=0)[61:]
    assert unfold(Codec.SNAPPY, snappy.compress(value)) == value


def test_zstd_without_a_content_size_is_read():
    value = encode([b"value" * 100], timestamps=0)[61:]
    payload = zstandard.ZstdCompressor(write_content_size=False).compress(value)
    assert unfold(Codec.ZSTD, payload) == value


# -- garbage and bombs -------------------------------------------------------------------------------------


@folding
@given(payload=st.binary(max_size=300))
def test_garbage_is_refused_where_the_records_stand(codec, payload):
    batch = batch_of(codec, payload)
    try:
        decode(batch)
    except CorruptBatch as fault:
        assert fault.position >= 57


@folding
@given(data=st.data())
def test_tampered_payloads_are_refused_or_read(codec, data):
    payload = bytearray(codecs.fold(codec, encode([b"value" * 20] * 5, timestamps=0)[61:]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    batch = batch_of(codec, bytes(payload[:cut] if data.draw(st.booleans()) else payload), record_count=5)
    for opened in (decode, decode_columns):
        try:
            assert len(opened(batch)) == 5
        except CorruptBatch as fault:
            assert fault.position >= 57


@folding
def test_a_bomb_of_anything_but_records_costs_little(codec):
    payload = fold_zeros(codec, 200 * limits.MIB)
    batch = batch_of(codec, payload)

    def refuse() -> None:
        with pytest.raises(CorruptBatch) as raised:
            decode(batch)
        assert raised.value.field == "record_attributes"

    refuse()  # what the codec keeps for ever is not the bomb's cost
    assert peak_bytes(refuse) < limits.MIB + len(batch)


@folding
def test_a_bomb_of_one_record_too_large_costs_little(codec):
    length = limits.DECOMPRESSED_BYTES_MAX + 10
    record = varint.write(length) + b"\x00\x00\x00\x01" + varint.write(length - 10) + bytes(3 * limits.MIB)
    batch = batch_of(codec, bytes(codecs.fold(codec, record)))

    def refuse() -> None:
        with pytest.raises(CorruptBatch, match="unfold to more"):
            decode(batch)

    refuse()
    assert peak_bytes(refuse) < limits.MIB + len(batch)


@folding
def test_records_that_unfold_beyond_the_cap_are_refused(codec):
    # Right records, one after the other: no field is wrong until there are too many bytes.
    count = limits.DECOMPRESSED_BYTES_MAX // limits.MIB + 1
    records = b"".join(twin.encode_item(twin.Item(0, i, None, bytes(limits.MIB), [])) for i in range(count))
    batch = batch_of(codec, bytes(codecs.fold(codec, records)), record_count=count)
    with pytest.raises(CorruptBatch, match="unfold to more"):
        decode(batch)


def test_a_zstd_frame_with_a_huge_window_costs_little():
    # 64 MiB of window, announced in one byte; then RLE blocks of 128 KiB in four bytes each.
    frame = struct.pack("<I", zstandard.MAGIC_NUMBER) + bytes([0x00, 16 << 3])
    block = struct.pack("<I", (128 * limits.KIB) << 3 | 1 << 1)[:3] + b"\x00"
    last = struct.pack("<I", 1 << 3 | 1 << 1 | 1)[:3] + b"\x00"
    batch = batch_of(Codec.ZSTD, frame + block * 4000 + last)

    def refuse() -> None:
        with pytest.raises(CorruptBatch):
            decode(batch)

    refuse()
    assert peak_bytes(refuse) < limits.MIB + len(batch)


def test_a_snappy_block_that_lies_about_its_size_costs_nothing():
    payload = b"\xff\xff\xff\xff\x07" + bytes(10)  # claims 2 GiB
    batch = batch_of(Codec.SNAPPY, payload)

    def refuse() -> None:
        with pytest.raises(CorruptBatch, match="claims to hold"):
            decode(batch)

    refuse()
    assert peak_bytes(refuse) < limits.MIB


def test_a_claim_of_many_records_is_refused_before_anything_is_sized_by_it():
    batch = encode([b"x"] * 1_000_000, timestamps=0)
    payload = codecs.fold(Codec.ZSTD, encode([b"x"], timestamps=0)[61:])
    folded = _kernel.fold(batch, payload, Codec.ZSTD)
    del batch

    def refuse() -> None:
        for opened in (decode, decode_columns):
            with pytest.raises(CorruptBatch) as raised:
                opened(folded)
            assert raised.value.field == "record_count"

    refuse()
    assert peak_bytes(refuse) < limits.MIB


@folding
def test_the_beginning_of_what_was_folded_is_known_and_other_beginnings_are_not(codec):
    codecs.check_beginning(codec, memoryview(bytes(codecs.fold(codec, b"records" * 100))), 61)
    for wrong in (b"", b"\xff" * 50, bytes(50)):
        with pytest.raises(CorruptBatch, match="do not begin as"):
            codecs.check_beginning(codec, memoryview(wrong), 61)


def test_a_raw_block_of_snappy_is_known_too():
    codecs.check_beginning(Codec.SNAPPY, memoryview(bytes(cramjam.snappy.compress_raw(b"records" * 100))), 61)
