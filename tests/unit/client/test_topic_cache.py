"""What a client knows of topics: when one that is not told of was deleted, and when a node has not heard of it yet."""

from __future__ import annotations

from ringlog.client.connection import Connection
from ringlog.client.metadata import TopicCache
from ringlog.client.settings import ClientSettings
from ringlog.errors import UnknownTopic
from ringlog.net.messages import BrokerMetadata, MetadataReply, PartitionMetadata, TopicMetadata

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


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_topics_that_come_and_go_are_not_kept_for_ever():
    clock = Clock()
    cache = TopicCache(max_age_s=300, clock=clock)
    dropped = []
    for number in range(5_000):
        clock.now_s += 10
        cache.put(TopicMetadata(f"t{number}", "", number, THERE.partitions, {}), 2 * number)
        if number % 2:
            cache.put(TopicMetadata(f"t{number}", UnknownTopic.code, -1, [], {}), 2 * number + 1)
        dropped += cache.sweep()
    kept = [cache._topics, cache._seen, cache._gone, cache._told_s]
    assert max(map(len, kept)) <= 2 * 600 / 10
    assert len(dropped) > 2_000, "and whoever knows more of them is told"


def test_a_topic_that_is_asked_for_stays_and_so_do_those_of_the_node():
    clock = Clock()
    cache = TopicCache(max_age_s=300, clock=clock)
    cache.put(TopicMetadata("__offsets", "", 2, THERE.partitions, {}), 1)
    for _ in range(10):
        clock.now_s += 299
        cache.put(THERE, 5)
        assert cache.sweep() == []
    assert (cache.fresh("t"), cache.fresh("__offsets")) == (THERE, None)
    assert cache.known("__offsets") is not None
    clock.now_s += 601
    assert cache.sweep() == [THERE]
    assert cache.known("t") is None


def test_a_topic_that_was_just_asked_for_is_judged_by_what_was_known_before():
    clock = Clock()
    cache = TopicCache(max_age_s=300, clock=clock)
    cache.put(THERE, 5)
    clock.now_s += 1000
    assert cache.ask_once("t")
    assert cache.sweep() == []
    cache.put(NOT_THERE, 6)
    assert cache.is_gone("t")


def test_a_topic_that_is_deleted_or_made_anew_is_named_so_that_others_forget_it():
    cache = told((THERE, 5))
    again = TopicMetadata("t", "", 2, [PartitionMetadata(0, 8, 0, 0)], {})
    assert cache.put(again, 6) is THERE
    assert cache.put(again, 6) is None
    assert cache.put(NOT_THERE, 7) is again
    assert cache.drop("t") is None
    assert not cache.is_gone("t")


def test_a_cluster_is_not_asked_who_leads_partitions_of_topics_that_are_gone():
    settings = ClientSettings(bootstrap="127.0.0.1:1")
    client = Connection(settings)
    for number in range(100):
        led = PartitionMetadata(0, number, 0, 1, 3, [1], [1])
        topic = TopicMetadata(f"t{number}", "", number, [led], {})
        node = BrokerMetadata(1, ["tcp://127.0.0.1:1"], "elsewhere", "", False)
        client.learn_all(MetadataReply("c", 1, number, [], "here", 1 << 20, [topic], {}, [node]))
        assert client._view.routes == {number: 1}
        client.drop(topic.name)
    assert (client._view.routes, client._view._epochs) == ({}, {})
    client.close()
