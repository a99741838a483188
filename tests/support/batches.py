"""Hypothesis strategies for record batches: right ones, and ones that were tampered with."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from ringlog.native import _kernel
from tests.support.twins import batch as twin

EDGES = (0, 1, -1, -2, 2, 7, 48, 49, 61, 127, 128, 2**15 - 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))

# Lengths of one varint byte and of two, and null; the content does not matter.
payloads = (
    st.none() | st.binary(max_size=8) | st.sampled_from((b"", b"\xff" * 63, b"\x02" * 64, b"long" * 33))
)
header_keys = st.text(alphabet="aé漢😀", max_size=3)
header_lists = st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=3)), max_size=2)
times = st.integers(0, 2**41) | st.integers(-(2**62), 2**62 - 1)


@st.composite
def record_lists(draw: st.DrawFn, max_size: int = 6) -> dict[str, Any]:
    """The arguments of an encoder: equally long lists of values, keys, headers and timestamps."""
    count = draw(st.integers(1, max_size))
    one_each = {"min_size": count, "max_size": count}
    return {
        "values": draw(st.lists(payloads, **one_each)),
        "keys": draw(st.lists(payloads, **one_each)),
        "headers": draw(st.lists(header_lists, **one_each)),
        "timestamps": draw(st.lists(times, **one_each)),
    }


batch_fields = st.fixed_dictionaries(
    {
        "base_offset": st.integers(0, 2**62),
        "leader_epoch": st.integers(-1, 2**31 - 1),
        "producer_id": st.integers(-1, 2**63 - 1),
        "producer_epoch": st.integers(-1, 2**15 - 1),
        "base_sequence": st.integers(-1, 2**31 - 1),
    }
)


@st.composite
def sparse_batches(draw: st.DrawFn, base_offset: int = 0) -> bytes:
    """A batch with gaps between its offsets, as compaction leaves it; perhaps without any record."""
    deltas = sorted(draw(st.sets(st.integers(0, 300), max_size=5)))
    last = draw(st.integers(deltas[-1] if deltas else 0, 400))
    items = [
        twin.Item(draw(st.integers(-5, 2**40)), delta, draw(payloads), draw(payloads), draw(header_lists))
        for delta in deltas
    ]
    attributes = draw(st.sampled_from((0, 1 << 3, 1 << 4, 1 << 5)))
    epoch = draw(st.integers(-1, 5))
    header = twin.Header(base_offset, 0, epoch, 2, 0, attributes, last, 1000, 2000, -1, -1, -1, len(items))
    return twin.seal(header, b"".join(twin.encode_item(item) for item in items))


@st.composite
def buffers(draw: st.DrawFn) -> bytes:
    """A few batches, one behind the other, mostly at the offsets that follow each other."""
    data, offset = b"", draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 3))):
        batch = draw(sparse_batches(offset))
        header = twin.Header(*twin.HEADER.unpack_from(batch))
        offset += header.last_offset_delta + 1 + draw(st.sampled_from((0, 0, 0, 2)))
        data += batch
    return data


@st.composite
def tampered(draw: st.DrawFn) -> bytes:
    """A buffer of batches with a few bytes changed; half of the time the CRCs are made right again, so that
    what lies behind them is reached."""
    data = bytearray(draw(buffers()))
    for _ in range(draw(st.integers(0, 3))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(("flip", "set", "field", "cut", "insert", "delete"))):
            case "flip":
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "set":
                data[at] = draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)))
            case "field":
                name = draw(st.sampled_from(twin.Header._fields))
                code = struct.Struct(">" + twin.FIELD_CODES[name])
                value = draw(st.sampled_from(EDGES)) % (1 << 8 * code.size)
                begin = twin.FIELD_BEGINS[name]
                data[begin : begin + code.size] = value.to_bytes(code.size, "big")
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(max_size=4))
            case "delete":
                del data[at : at + draw(st.integers(1, 4))]
    if draw(st.booleans()):
        reseal(data)
    return bytes(data)


def reseal(data: bytearray) -> None:
    """Make the CRC right of each batch that can be walked to."""
    at = 0
    while at + twin.HEADER.size <= len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if end < at + twin.HEADER.size or end > len(data):
            return
        data[at + 17 : at + 21] = _kernel.crc32c(data[at + 21 : end]).to_bytes(4, "big")
        at = end
