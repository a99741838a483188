"""A committed epoch is known by its query and number, to every task that asks; and only such an epoch is."""

from __future__ import annotations

import pytest

import ringlog
from ringlog.errors import EpochMismatch
from ringlog.model import TopicPartition
from spark_bridge import epochs
from spark_bridge.epochs import Epoch

AT = TopicPartition("orders", 0)


@pytest.fixture
def bootstrap(ringlog_node) -> str:
    with ringlog.Admin(ringlog_node.bootstrap) as admin:
        admin.create_topic("orders", 2)
    return ringlog_node.bootstrap


def test_an_epoch_is_committed_once_it_was_committed_and_no_other_is(bootstrap):
    third = Epoch("q", 3)
    assert not epochs.is_committed(third, bootstrap)
    epochs.commit(third, 7, {AT: 7}, bootstrap)
    assert epochs.is_committed(third, bootstrap)
    assert not epochs.is_committed(Epoch("q", 4), bootstrap)
    assert not epochs.is_committed(Epoch("another", 3), bootstrap)


def test_the_last_epoch_counts_wherever_it_wrote_to(bootstrap):
    epochs.commit(Epoch("q", 3), 7, {AT: 7, TopicPartition("orders", 1): 1}, bootstrap)
    epochs.commit(Epoch("q", 4), 2, {AT: 9}, bootstrap)
    assert epochs.is_committed(Epoch("q", 4), bootstrap)


def test_an_epoch_before_the_last_is_refused_with_the_way_out(bootstrap):
    epochs.commit(Epoch("q", 3), 7, {AT: 7}, bootstrap)
    with pytest.raises(EpochMismatch, match="ringlog group delete spark-sink-q"):
        epochs.is_committed(Epoch("q", 2), bootstrap)


def test_an_epoch_that_comes_again_with_other_records_is_refused(bootstrap):
    epochs.commit(Epoch("q", 3), 7, {AT: 7}, bootstrap)
    epochs.check_replay(Epoch("q", 3), 7, bootstrap)
    with pytest.raises(EpochMismatch, match="with 7 records, and now comes with 8"):
        epochs.check_replay(Epoch("q", 3), 8, bootstrap)


def test_an_epoch_without_records_leaves_nothing(bootstrap):
    epochs.commit(Epoch("q", 3), 0, {}, bootstrap)
    assert not epochs.is_committed(Epoch("q", 3), bootstrap)


def test_operators_see_how_far_the_query_has_written(bootstrap):
    epochs.commit(Epoch("q", 3), 7, {AT: 7}, bootstrap)
    with ringlog.Admin(bootstrap) as admin:
        (shown,) = admin.describe_group("spark-sink-q").partitions
    assert (shown.topic, shown.partition, shown.committed, shown.metadata) == (
        "orders", 0, 7, '{"epoch":3,"records":7}',
    )  # fmt: skip


def test_an_offset_that_somebody_set_by_hand_tells_of_no_epoch(bootstrap):
    epochs.commit(Epoch("q", 3), 7, {AT: 7}, bootstrap)
    with ringlog.Admin(bootstrap) as admin:
        admin.reset_group("spark-sink-q", admin.plan_reset("spark-sink-q", to="earliest"))
    assert not epochs.is_committed(Epoch("q", 3), bootstrap)
