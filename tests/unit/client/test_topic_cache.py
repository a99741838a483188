"""What a client knows of topics: when one that is not told of was deleted, and when a node has not heard of it yet."""

from __future__ import annotations

from ringlog.client.metadata import TopicCache
from ringlog.errors import UnknownTopic
from ringlog.net.messages import PartitionMetadata, TopicMetadata

THERE = TopicMetadata("t", "", 1, [PartitionMetadata(0, 7, 0, 0)], {})
NOT_THERE = TopicMetadata("t", UnknownTopic.code, -1, [], {})


def told(*answers):
    cache = TopicCache(max_age_s=60)
    for topic, version in answers:
        cache.put(topic, version)
    return cache


def test_a_topic_is_gone_when_metadata_as_new_as_those_that_had_it_lack_it():
    assert told((THERE, 5), (NOT_THERE, 6)).is_gone("t")
    assert told((THERE, 5), (THERE, 4), (NOT_THERE, 5)).is_gone("t")


def test_a_node_that_lags_behind_proves_nothing():
    assert not told((THERE, 5), (NOT_THERE, 4)).is_gone("t")
    assert told((THERE, 5), (NOT_THERE, 4), (NOT_THERE, 6)).is_gone("t"), (
        "and takes nothing from a later proof"
    )


def test_a_topic_that_was_never_there_is_not_gone():
    assert not told((NOT_THERE, 5)).is_gone("t")


def test_a_topic_that_is_there_again_is_not_gone():
    assert not told((THERE, 5), (NOT_THERE, 6), (THERE, 7)).is_gone("t")


def test_another_error_of_a_topic_does_not_mean_that_it_is_gone():
    assert not told((THERE, 5), (TopicMetadata("t", "INVALID_REQUEST", -1, [], {}), 6)).is_gone("t")
