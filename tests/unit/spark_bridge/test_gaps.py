"""What a query cannot read any more is told exactly: which offsets, and why."""

from __future__ import annotations

import logging

import msgspec
import pytest

from ringlog.errors import DataLoss, NodeUnavailable
from ringlog.limits import (
    GROUP_ID_CHARS_MAX,
    OFFSET_METADATA_CHARS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    TOPIC_NAME_CHARS_MAX,
)
from ringlog.model import TopicPartition
from spark_bridge.gap_notes import Note, group_id, joined, new_read_id
from spark_bridge.gaps import GapPolicy, below_start, vanished
from spark_bridge.offsets import from_json, to_json
from spark_bridge.ranges import OffsetRange

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
PART = OffsetRange("a", 0, 10, 50)


def test_retention_takes_the_front_of_a_range():
    gap = below_start(PART, 30)
    assert gap is not None
    assert gap.part == OffsetRange("a", 0, 10, 30)
    assert below_start(PART, 10) is None
    everything = below_start(PART, 90)
    assert everything is not None
    assert everything.part == PART


def test_a_gap_is_an_error_that_names_the_range():
    gap = below_start(PART, 30)
    assert gap is not None
    with pytest.raises(DataLoss, match=r"20 offsets of a-0 \[10, 30\) cannot be read: the log begins at 30"):
        GapPolicy(fail_on_data_loss=True).meet(gap)


def test_a_gap_that_is_accepted_is_counted_and_logged(caplog):
    gap = below_start(PART, 30)
    assert gap is not None
    policy = GapPolicy(fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING):
        policy.meet(gap)
        policy.meet(gap)
    assert policy.lost == {A: 40}
    assert "skipped, since failOnDataLoss=false: 20 offsets of a-0 [10, 30)" in caplog.text


def test_a_gap_that_could_not_be_noted_is_not_skipped():
    def refuse(gap: OffsetRange) -> str:
        raise NodeUnavailable(f"nobody to tell of {gap}")

    policy = GapPolicy(fail_on_data_loss=False, tell=refuse)
    gap = below_start(PART, 30)
    assert gap is not None
    with pytest.raises(NodeUnavailable):
        policy.meet(gap)
    assert not policy.lost


def test_a_note_of_many_gaps_stays_small_and_its_count_exact():
    note = None
    for n in range(500):
        note = joined(note, OffsetRange("a", 0, 10 * n, 10 * n + 3))
    assert note is not None
    assert note.offsets == 1500
    assert (note.lost[0], note.lost[-1][1]) == ((0, 3), 4993)
    assert len(msgspec.json.encode(note)) < OFFSET_METADATA_CHARS_MAX
    assert msgspec.json.decode(msgspec.json.encode(note), type=Note) == note


def test_the_longest_topic_fits_into_the_name_of_its_notes():
    task = OffsetRange("t" * TOPIC_NAME_CHARS_MAX, PARTITIONS_PER_TOPIC_MAX, 2**63 - 2, 2**63 - 1)
    assert len(group_id(new_read_id(), task)) <= GROUP_ID_CHARS_MAX


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one():
    found = vanished({A: 50}, {"a": 1}, {A: 80}, {"a": 2}, seen={A: 70})
    assert found[A].part == OffsetRange("a", 0, 50, 70), "what is known to have been there, unread"
    assert "made anew" in found[A].why
    assert vanished({A: 50}, {"a": 1}, {A: 80}, {"a": 2})[A].part.offsets == 0, "nobody knows"
    assert vanished({A: 50}, {"a": 1}, {A: 80}, {"a": 1}) == {}


def test_a_log_that_ends_early_and_a_partition_that_is_gone_are_gaps():
    found = vanished({A: 50, B: 7}, {"a": 1, "b": 2}, {A: 20}, {"a": 1})
    assert found[A].part == OffsetRange("a", 0, 20, 50)
    assert "gone" in found[B].why


def test_offsets_come_back_from_the_checkpoint_as_they_went():
    offsets, ids = {A: 5, B: 2**62, TopicPartition("b", 0): 0}, {"a": 4, "b": 9}
    assert from_json(to_json(offsets, ids)) == (offsets, ids)
    assert list(to_json(offsets, ids)["b"]) == ["id", "0", "1"]
