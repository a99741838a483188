"""Objects that change, or lie, while they are read: what was asked for is encoded, or refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ringlog.errors import InvalidRequest
from ringlog.native import _kernel
from ringlog.records.builder import BatchBuilder
from ringlog.records.columns import Column
from ringlog.records.decode import decode
from ringlog.records.encode import encode, encode_columns
from ringlog.records.partitioner import key_partitions
from ringlog.records.scan import check


class MeddlingNumber:
    """A timestamp that empties a list when it is asked for its value."""

    def __init__(self, victim) -> None:
        self._victim = victim

    def __index__(self) -> int:
        self._victim.clear()
        return 17


class MeddlingIterable:
    """A sequence that empties a list when it is walked."""

    def __init__(self, items, victim) -> None:
        self._items, self._victim = items, victim

    def __iter__(self):
        self._victim.clear()
        self.others = [bytes([255]) * 1000 for _ in range(200)]  # where the values were
        return iter(self._items)


def fresh(count: int) -> list[bytes]:
    """Values that nobody else holds."""
    return [bytes([i]) * 1000 for i in range(count)]


def test_values_are_those_of_the_call_whatever_reading_the_keys_does_to_their_list():
    values = fresh(100)
    batch = encode(values, keys=MeddlingIterable([b"k"] * 100, values), timestamps=17)
    assert [record.value for record in decode(batch)] == fresh(100)


def test_timestamps_are_those_of_the_call_whatever_one_of_them_does_to_their_list():
    times: list = []
    times += [MeddlingNumber(times), *[18] * 99]
    batch = encode(fresh(100), timestamps=times)
    assert [record.timestamp for record in decode(batch)] == [17, *[18] * 99]


def test_headers_are_those_of_the_call_whatever_reading_one_does_to_the_others():
    first = [("name", bytes([7]) * 1000)]
    headers: list = [first, MeddlingIterable([("other", None)], first)]
    batch = encode([b"a", b"b"], headers=headers, timestamps=17)
    assert [record.headers for record in decode(batch)] == [[("name", bytes([7]) * 1000)], [("other", None)]]


class Capsules:
    """An Arrow array that gives out the capsules it was made of."""

    def __init__(self, capsules) -> None:
        self._capsules = capsules

    def __arrow_c_array__(self, requested_schema=None):
        return self._capsules


def taken_over() -> Capsules:
    capsules = pa.array([b"one", b"two"]).__arrow_c_array__()
    pa.Array._import_from_c_capsule(*capsules)
    return Capsules(capsules)


@pytest.mark.parametrize(
    "column",
    [taken_over(), Capsules(()), Capsules(pa.array([b"one"]).__arrow_c_array__()[:1])],
    ids=["taken over", "no capsules", "one capsule"],
)
def test_an_arrow_array_that_is_none_is_refused(column):
    with pytest.raises(InvalidRequest):
        encode_columns(column, timestamps=17)
    with pytest.raises(InvalidRequest):
        key_partitions(column, 3)


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int32())])
def test_lists_are_no_values(kind):
    column = pa.array([[1, 2], [3]], type=kind)
    with pytest.raises(InvalidRequest, match="must be binary"):
        encode_columns(column, timestamps=17)
    with pytest.raises(InvalidRequest, match="must be binary"):
        key_partitions(column, 3)


def test_the_numbers_of_a_dictionary_are_no_timestamps():
    words = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int64()), pa.array([1000, 2000], pa.int64()))
    with pytest.raises(InvalidRequest, match="dictionary"):
        encode_columns(Column.of([b"a", b"b"]), timestamps=words)


@pytest.mark.parametrize("offsets", [[0, 100], [-1, 1], [0, 3, 1], [4, 5]])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_column_whose_offsets_lead_out_of_its_data_is_not_given_to_arrow(offsets, kind):
    with pytest.raises(InvalidRequest):
        pa.array(Column(np.array(offsets, dtype=kind), b"abc"))


def test_headers_that_can_be_read_once_only_are_refused():
    builder = BatchBuilder(tuple, None, bytes_target=1024)
    pairs = [("name", b"value")]
    for once in (iter(pairs), zip(["name"], [b"value"], strict=True), (pair for pair in pairs)):
        with pytest.raises(TypeError, match="headers must be a dict"):
            builder.append(b"x", None, 17, once)
    for again in (pairs, tuple(pairs), dict(pairs), dict(pairs).items()):
        assert builder.append(b"x", None, 17, again) is not None
    assert builder.count == 4


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("base_offset", -(2**63)),
        ("base_offset", -1),
        ("last_offset", 2**63 - 1),
        ("last_offset", 2**31),
        ("position", 2**63 - 1),
        ("record_count", -1),
    ],
)
def test_rows_that_no_scan_makes_are_refused(field, wrong):
    batch = encode([b"one", b"two"], keys=[b"a", b"b"], timestamps=17)
    rows = check(batch).copy()
    rows[field] = wrong
    readers = [
        lambda: _kernel.decode_columns(batch, rows.tobytes(), None, True, True, True, True, True),
        lambda: _kernel.RecordIndex(batch, rows.tobytes(), None, tuple),
        lambda: _kernel.OffsetMap(1000, bytes(16)).note(batch, rows.tobytes(), None, 0),
        lambda: _kernel.records_bytes_needed(batch[61:65], rows.tobytes()),
    ]
    for read in readers:
        with pytest.raises(ValueError, match="batch"):
            read()


def test_a_map_of_keys_takes_offsets_that_a_log_can_have():
    keys = _kernel.OffsetMap(1000, bytes(16))
    assert keys.put(b"key", 2**63 - 2)
    assert keys.get(b"key") == 2**63 - 2
    for wrong in (2**63 - 1, -1):
        with pytest.raises(ValueError, match="offset"):
            keys.put(b"key", wrong)
