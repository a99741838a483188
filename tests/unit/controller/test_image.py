"""The image: every process that follows the same records has the same one, however they came to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringlog.controller.commands import add_partitions, alter_topic, create_topic, delete_topic, rebalance
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Delta, Identity, MetadataRecord, ProducerIds, Topic, deltas_of
from ringlog.errors import RinglogError
from ringlog.model import TopicPartition
from ringlog.net.messages import (
    AddPartitionsRequest,
    AlterTopicRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
)

names = st.sampled_from(["a", "b", "c"])
steps = st.lists(
    st.tuples(st.just("create"), names, st.integers(1, 5))
    | st.tuples(st.just("delete"), names, st.just(0))
    | st.tuples(st.just("grow"), names, st.integers(1, 8))
    | st.tuples(st.just("alter"), names, st.integers(1, 9))
    | st.tuples(st.just("producers"), names, st.integers(0, 9000))
    | st.tuples(st.just("shards"), names, st.integers(1, 4)),
    max_size=25,
)


def facts(image: MetadataImage) -> tuple[object, ...]:
    return (
        image.version,
        image.cluster_id,
        image.node_id,
        image.topics,
        image.topics_by_id,
        image.partitions,
        image.next_topic_id,
        image.next_partition,
        image.next_producer_id,
    )


def carry_out(image: MetadataImage, step: tuple[str, str, int]) -> list[MetadataRecord]:
    kind, name, number = step
    try:
        match kind:
            case "create":
                request = CreateTopicRequest(name, number)
                return create_topic(image, request, shards=3, default_partitions=1).records
            case "delete":
                return delete_topic(image, DeleteTopicRequest(name)).records
            case "grow":
                return add_partitions(image, AddPartitionsRequest(name, number), shards=3).records
            case "alter":
                return alter_topic(image, AlterTopicRequest(name, {"segment.ms": str(number)})).records
            case "producers":
                return [ProducerIds(number)]
            case _:
                return rebalance(image, number)
    except RinglogError:
        return []


def histories(commands: list[tuple[str, str, int]]) -> tuple[MetadataImage, list[list[MetadataRecord]]]:
    """The image that replays everything, and the records of each command."""
    image = MetadataImage()
    history: list[list[MetadataRecord]] = [[Identity("c", 1)]]
    image.replay(history[0][0])
    image.version = 1
    for step in commands:
        records = carry_out(image, step)
        for record in records:
            image.replay(record)
        image.version += len(records)
        history.append(records)
    return image, history


@given(steps, st.integers(0, 26), st.integers(1, 3))
def test_a_full_delta_and_those_after_it_equal_the_replay_of_all(commands, at, records_max):
    whole, history = histories(commands)
    at = min(at, len(history))
    early = MetadataImage()
    for records in history[:at]:
        for record in records:
            early.replay(record)
        early.version += len(records)
    follower = MetadataImage()
    follower.replay(Topic(77, "what-it-had-before", {}))
    for delta in deltas_of(early.version, early.records(), full=True, records_max=records_max):
        follower.apply(delta)
    version = early.version
    for records in history[at:]:
        version += len(records)
        for delta in deltas_of(version, records, full=False, records_max=records_max):
            follower.apply(delta)
    assert facts(follower) == facts(whole)


@given(steps)
def test_the_records_of_an_image_make_it_from_nothing(commands):
    image, _ = histories(commands)
    again = MetadataImage()
    again.apply(Delta(image.version, True, False, image.records()))
    assert facts(again) == facts(image)


@given(steps)
def test_partitions_of_a_topic_stand_by_their_index(commands):
    image, _ = histories(commands)
    for topic in image.topics.values():
        assert [image.partitions[p].index for p in topic.partitions] == list(range(len(topic.partitions)))
        assert [image.name_of(p) for p in topic.partitions] == [
            TopicPartition(topic.name, index) for index in range(len(topic.partitions))
        ]


def test_nobody_sees_half_of_a_delta():
    image = MetadataImage()
    image.apply(Delta(3, True, False, [Topic(1, "old", {})]))
    image.apply(Delta(9, True, True, [Topic(2, "new", {})]))
    assert (list(image.topics), image.version) == (["old"], 3)
    image.apply(Delta(9, False, False, []))
    assert (list(image.topics), image.version) == (["new"], 9)


def test_a_full_delta_takes_the_place_of_one_that_was_broken_off():
    image = MetadataImage()
    image.apply(Delta(9, True, True, [Topic(2, "lost", {})]))
    image.apply(Delta(4, True, False, [Topic(1, "kept", {})]))
    assert (list(image.topics), image.version) == (["kept"], 4)
