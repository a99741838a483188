"""Promises of the state file and the names in a partition's directory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import CorruptFile, InvalidRequest
from ringlog.log.epochs import EpochStart
from ringlog.log.names import offset_name, parse_offset_name, parse_partition_dir, partition_dir
from ringlog.log.state import ActivePoint, PartitionState, SavedIndexes, SealedEntry
from ringlog.model import TopicPartition

STATE = PartitionState(
    generation=4,
    clean=True,
    log_start_offset=3,
    reach_bytes=4096,
    sealed=[SealedEntry(0, 10, 999, 5, 1, 2)],
    active=ActivePoint(10, 20, 777, 1, 2, 3, SavedIndexes(1, 2, 3, 4)),
    epochs=[EpochStart(0, 0), EpochStart(2, 12)],
    has_producers=True,
)


def test_a_state_reads_back_as_it_was():
    assert PartitionState.decode(STATE.encode()) == STATE


@given(st.binary(max_size=200))
def test_any_other_bytes_give_a_typed_error(data):
    with pytest.raises(CorruptFile):
        PartitionState.decode(data)


def test_every_flipped_bit_and_every_cut_is_noticed():
    data = STATE.encode()
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptFile):
            PartitionState.decode(bytes(damaged))
    for length in range(len(data)):
        with pytest.raises(CorruptFile):
            PartitionState.decode(data[:length])


@pytest.mark.parametrize(
    "name", ["42.log", "00000000000000000042.lock", "00000000000000000042.log.cut", "", "x"]
)
def test_other_names_stand_for_nothing(name):
    assert parse_offset_name(name) is None


def test_names_are_kafkas():
    assert offset_name(0, ".log") == "00000000000000000000.log"
    assert parse_offset_name("00000000000000000007.timeindex") == (7, ".timeindex")


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../x", "a b", "ü", "x" * 250, "a\0b"])
def test_a_topic_name_that_could_lead_elsewhere_is_refused(topic):
    with pytest.raises(InvalidRequest):
        partition_dir("/data", TopicPartition(topic, 0))


def test_a_directory_name_reads_back_as_its_partition():
    assert parse_partition_dir("my-topic-12") == TopicPartition("my-topic", 12)
    assert parse_partition_dir("my-topic") is None
    assert parse_partition_dir("t-01") is None
