"""Batches under the codec of their topic: the same records and fields, and nothing that does not unfold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog import limits
from ringlog.errors import CorruptBatch
from ringlog.model import Codec
from ringlog.native import _kernel
from ringlog.records import codecs
from ringlog.records.decode import decode
from ringlog.records.encode import encode
from ringlog.records.format import CODEC_MASK, codec_of
from ringlog.records.recompress import needs_recompression, recompress
from ringlog.records.scan import check
from tests.support.batches import batch_fields, record_lists
from tests.support.memory import peak_bytes

KEPT = [
    name
    for name in check(encode([b"x"], timestamps=0)).dtype.names
    if name not in ("length", "crc", "position")
]
"""What a table says of a batch that does not follow from its codec; of the attributes, all but the codec."""


def recompressed(data: bytearray | bytes, codec: Codec) -> bytearray:
    view = memoryview(data)
    return recompress(view, check(view), codec)


@given(record_lists(), batch_fields, st.sampled_from(Codec), st.sampled_from(Codec))
def test_records_and_fields_are_the_same_under_any_other_codec(records, fields, before, after):
    batch = encode(**records, **fields, codec=before)
    made = recompressed(batch, after)
    (old,), (new,) = check(batch), check(made)
    assert codec_of(int(new["attributes"])) is after
    assert decode(made)[:] == decode(batch)[:]
    for name in KEPT:
        mask = ~CODEC_MASK if name == "attributes" else -1
        assert int(old[name]) & mask == int(new[name]) & mask, name
    assert recompressed(made, before)[limits.BATCH_HEADER_BYTES :] == batch[limits.BATCH_HEADER_BYTES :]


def test_batches_that_have_the_codec_are_copied_as_they_are():
    batches = [
        encode([b"one" * 50], timestamps=1, codec=codec) for codec in (Codec.LZ4, Codec.NONE, Codec.LZ4)
    ]
    data = b"".join(batches)
    assert needs_recompression(check(data), Codec.LZ4)
    made = recompressed(data, Codec.LZ4)
    assert made.startswith(batches[0]) and made.endswith(batches[2])
    assert not needs_recompression(check(made), Codec.LZ4)
    assert [record.value for record in decode(made)] == [b"one" * 50] * 3


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("spoil", ["codec", "records"])
def test_what_does_not_unfold_to_records_is_refused(codec, spoil):
    good = encode([b"value %d" % number for number in range(20)], timestamps=1, codec=codec)
    if spoil == "codec":
        payload = bytes(good[limits.BATCH_HEADER_BYTES : -8]) + b"spoilt!!"
    else:
        payload = bytes(codecs.fold(codec, b"no records, for sure" * 9))
    for target in Codec:
        if target is not codec:
            with pytest.raises(CorruptBatch):
                recompressed(_kernel.fold(good, payload, codec), target)


def test_a_batch_inside_whose_offsets_are_not_its_own_is_refused():
    records = bytearray(encode([b"a", b"b"], timestamps=1)[limits.BATCH_HEADER_BYTES :])
    records[3] = 2  # the first record claims the offset of the second
    lying = _kernel.fold(encode([b"a", b"b"], timestamps=1), codecs.fold(Codec.ZSTD, records), Codec.ZSTD)
    check(lying)  # nobody looks into it before
    with pytest.raises(CorruptBatch, match="offset_delta"):
        recompressed(lying, Codec.NONE)


@pytest.mark.parametrize("target", [Codec.NONE, Codec.LZ4])
def test_a_batch_that_unfolds_to_too_much_is_refused_at_a_bounded_cost(target):
    values = [bytes(limits.MIB)] * (limits.RECOMPRESSED_BYTES_MAX // limits.MIB + 1)
    large = encode(values, timestamps=1, codec=Codec.ZSTD)
    del values

    def refuse() -> None:
        with pytest.raises(CorruptBatch, match="unfold to more than"):
            recompressed(large, target)

    assert peak_bytes(refuse) < 3 * limits.RECOMPRESSED_BYTES_MAX
