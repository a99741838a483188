"""What bad input costs: a typed error, and memory no larger than the input plus 1 MiB."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringlog import limits
from ringlog.errors import CorruptBatch
from ringlog.records.columns import Column
from ringlog.records.decode import decode, decode_columns
from ringlog.records.encode import encode_columns, encode_empty
from ringlog.records.scan import check, find_batch, scan, stamp
from tests.support.batches import reseal
from tests.support.memory import peak_bytes

SIZE = 4 * limits.MIB


def random_bytes() -> bytearray:
    return bytearray(np.random.default_rng(7).bytes(SIZE))


def broken_at_the_very_end() -> bytearray:
    column = Column(np.arange(SIZE // 8 + 1, dtype=np.int32), bytes(SIZE // 8))
    batch = encode_columns(column, timestamps=0)
    batch[-1] = 1  # the last record claims a header too many, after half a million right ones
    reseal(batch)
    return batch


def many_batches_and_a_broken_one() -> bytearray:
    return encode_empty(base_offset=0, last_offset=0) * (SIZE // 61) + b"\xff" * 61


def a_length_of(length: int) -> bytearray:
    return bytearray(struct.pack(">qi", 0, length) + bytes(SIZE))


INPUTS: dict[str, Callable[[], bytearray]] = {
    "random": random_bytes,
    "zeros": lambda: bytearray(SIZE),
    "ones": lambda: bytearray(b"\xff" * SIZE),
    "twos": lambda: bytearray(b"\x02" * SIZE),
    "broken at the very end": broken_at_the_very_end,
    "many batches and a broken one": many_batches_and_a_broken_one,
    "the largest length": lambda: a_length_of(2**31 - 1),
    "a length of -1": lambda: a_length_of(-1),
}
PARSERS: dict[str, Callable[[Any], Any]] = {
    "check": check,
    "decode": decode,
    "decode_columns": decode_columns,
    "stamp": lambda data: stamp(data, base_offset=0, leader_epoch=0),
}


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("parse", PARSERS.values(), ids=PARSERS)
def test_bad_input_is_a_typed_error_that_costs_little_and_changes_nothing(parse, make):
    data = make()
    before = bytes(data)
    if parse is PARSERS["stamp"] and make is broken_at_the_very_end:
        data.append(0)  # stamping asks nothing of records, so give it half a batch to refuse
        before = bytes(data)

    def refuse() -> None:
        with pytest.raises(CorruptBatch) as raised:
            parse(data)
        assert raised.value.field
        # An incomplete header is named by its length's place, which may lie behind the end.
        assert 0 <= raised.value.position <= len(data) + 8

    refuse()
    assert peak_bytes(refuse) <= len(data) + limits.MIB
    assert data == before


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
def test_scanning_and_searching_bad_input_costs_little(make):
    data = make()
    assert scan(data).fault is not None
    assert peak_bytes(lambda: scan(data)) <= len(data) + limits.MIB
    assert peak_bytes(lambda: find_batch(data, 1, min_offset=1)) <= limits.MIB


def test_the_meter_sees_memory_that_is_used():
    assert peak_bytes(lambda: b"\x01" * (8 * limits.MIB)) > 7 * limits.MIB
