"""Promises of the producers' table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import CorruptFile, OutOfOrderSequence, ProducerFenced
from ringlog.limits import PRODUCER_BATCHES_KEPT, PRODUCER_EXPIRY_MS, PRODUCERS_PER_PARTITION_MAX
from ringlog.log import envelope
from ringlog.log.batch import BatchInfo
from ringlog.log.producers import SNAPSHOT_MAGIC, ProducerTable, Repeat
from ringlog.log.replay import replay_producers
from ringlog.records.encode import encode
from ringlog.records.scan import check


def batch(sequence, count=1, producer=7, epoch=0):
    return BatchInfo(100, count, 0, producer, epoch, sequence)


def table_after(*sequences, count=1):
    table = ProducerTable()
    for number, sequence in enumerate(sequences):
        assert table.judge(batch(sequence, count)) is None
        table.note(batch(sequence, count), base_offset=number * count, now_ms=0)
    return table


def test_a_repeated_batch_is_answered_with_its_first_offset():
    table = table_after(0, 3, 6, count=3)
    assert table.judge(batch(3, 3)) == Repeat(3, 5)


def test_the_last_five_batches_are_recognised_and_older_ones_refused():
    table = table_after(*range(10))
    for sequence in range(10 - PRODUCER_BATCHES_KEPT, 10):
        assert table.judge(batch(sequence)) == Repeat(sequence, sequence)
    with pytest.raises(OutOfOrderSequence):
        table.judge(batch(4))


def test_a_skipped_sequence_is_refused():
    with pytest.raises(OutOfOrderSequence, match="5 came where 3 was due"):
        table_after(0, 1, 2).judge(batch(5))


def test_a_batch_that_overlaps_an_earlier_one_is_refused():
    with pytest.raises(OutOfOrderSequence):
        table_after(0, 3, count=3).judge(batch(4, 3))


def test_sequences_wrap_to_zero():
    table = ProducerTable()
    table.note(batch(2**31 - 2, 2), 0, 0)
    assert table.judge(batch(0)) is None


def test_an_older_epoch_is_fenced():
    table = ProducerTable()
    table.note(batch(0, epoch=3), 0, 0)
    with pytest.raises(ProducerFenced):
        table.judge(batch(1, epoch=2))


def test_a_new_epoch_begins_at_zero():
    table = table_after(0, 1)
    assert table.judge(batch(0, epoch=1)) is None
    with pytest.raises(OutOfOrderSequence):
        table.judge(batch(2, epoch=1))


def test_judging_changes_nothing():
    table = table_after(0, 1, 2)
    before = table.encode(3)
    table.judge(batch(3))
    table.judge(batch(2))
    assert table.encode(3) == before


def test_idle_producers_expire_after_a_day():
    table = ProducerTable()
    table.note(batch(0, producer=1), 0, now_ms=0)
    table.note(batch(0, producer=2), 1, now_ms=PRODUCER_EXPIRY_MS - 1)
    assert table.expire(PRODUCER_EXPIRY_MS) == 1
    assert table.judge(batch(5, producer=1)) is None
    with pytest.raises(OutOfOrderSequence):
        table.judge(batch(5, producer=2))


def test_the_table_is_bounded_and_forgets_the_longest_unused():
    table = ProducerTable()
    for producer in range(PRODUCERS_PER_PARTITION_MAX):
        table.note(batch(0, producer=producer), producer, 0)
    table.note(batch(1, producer=0), 1, 0)  # producer 0 is used again, so 1 is now the oldest
    table.note(batch(0, producer=10**6), 2, 0)
    assert len(table) == PRODUCERS_PER_PARTITION_MAX
    assert table.judge(batch(1, producer=0)) is not None
    assert table.judge(batch(9, producer=1)) is None


def test_a_snapshot_gives_the_same_answers():
    table = table_after(0, 1, 2)
    again = ProducerTable.decode(table.encode(3), 3)
    assert again.judge(batch(2)) == Repeat(2, 2)
    assert again.judge(batch(3)) is None


def test_a_snapshot_keeps_the_time_of_an_append():
    table = ProducerTable()
    table.note(batch(0), base_offset=0, now_ms=17, append_time_ms=17)
    table.note(batch(1), base_offset=1, now_ms=18)
    again = ProducerTable.decode(table.encode(2), 2)
    assert again.judge(batch(0)) == Repeat(0, 0, append_time_ms=17)
    assert again.judge(batch(1)) == Repeat(1, 1, append_time_ms=-1)


def test_a_snapshot_without_times_of_appends_is_read():
    old = envelope.seal(SNAPSHOT_MAGIC, (1, [(7, 0, [(0, 0, 0, 0)], 5)]))
    assert ProducerTable.decode(old, 1).judge(batch(0)) == Repeat(0, 0, append_time_ms=-1)


def test_a_replay_finds_the_times_of_appends_again():
    batches = [
        encode([b"x"], timestamps=5, append_time=by_append, producer_id=7, producer_epoch=0, base_sequence=n)
        for n, by_append in enumerate((True, False))
    ]
    table = ProducerTable()
    replay_producers(table, check(b"".join(map(bytes, batches)), gapless=False), now_ms=9)
    assert table.entries[0].batches[0].append_time_ms == 5
    assert table.entries[0].batches[1].append_time_ms == -1


def test_a_snapshot_under_a_wrong_name_is_refused():
    with pytest.raises(CorruptFile):
        ProducerTable.decode(table_after(0).encode(1), 2)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_typed_error(data):
    with pytest.raises(CorruptFile):
        ProducerTable.decode(data, 0)


@given(st.integers(0, 10**6), st.integers(0, 7))
def test_any_flipped_bit_of_a_snapshot_is_noticed(at, bit):
    data = bytearray(table_after(0, 1, 2).encode(3))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(CorruptFile):
        ProducerTable.decode(bytes(data), 3)
