"""Commands of the controller: what they refuse, what records they make, and whom they move."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.controller.commands import (
    PRODUCER_ID_BLOCK,
    Outcome,
    ProducerIdSource,
    add_partitions,
    alter_topic,
    create_topic,
    delete_topic,
    rebalance,
)
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Partition, ProducerIds, Topic
from ringlog.errors import InvalidRequest, LimitExceeded, TopicExists, UnknownTopic
from ringlog.limits import PARTITIONS_MAX, PARTITIONS_PER_TOPIC_MAX, TOPIC_NAME_CHARS_MAX
from ringlog.net.messages import (
    AddPartitionsRequest,
    AlterTopicRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    InitProducerReply,
    TopicReply,
)


def done(image: MetadataImage, outcome: Outcome):
    for record in outcome.records:
        image.replay(record)
    return outcome.reply(image)


def create(
    image: MetadataImage, name: str = "orders", partitions: int = 4, shards: int = 2, **more
) -> TopicReply:
    request = CreateTopicRequest(name, partitions, **more)
    return done(image, create_topic(image, request, shards=shards, default_partitions=3))


def loads_of(image: MetadataImage) -> Counter[int]:
    return Counter(partition.shard for partition in image.partitions.values())


@pytest.fixture
def image() -> MetadataImage:
    return MetadataImage()


def test_partitions_are_spread_evenly_over_shards(image):
    for number in range(5):
        create(image, f"topic-{number}", 3, shards=4)
    assert sorted(loads_of(image).values()) == [3, 4, 4, 4]


def test_a_reply_tells_the_topic_as_it_is_after_the_change(image):
    reply = create(image, config={"flush": "os"})
    assert (reply.topic.name, reply.topic.error, reply.topic.config) == ("orders", "", {"flush": "os"})
    assert [partition.index for partition in reply.topic.partitions] == [0, 1, 2, 3]


def test_without_a_number_a_topic_gets_the_default_number_of_partitions(image):
    assert len(create(image, partitions=-1).topic.partitions) == 3


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "x" * (TOPIC_NAME_CHARS_MAX + 1), "\0"]
)
def test_a_name_that_no_directory_should_have_is_refused(image, name):
    with pytest.raises(InvalidRequest, match="use 1 to"):
        create(image, name)


def test_the_longest_name_is_taken(image):
    create(image, "x" * TOPIC_NAME_CHARS_MAX)
    assert "x" * TOPIC_NAME_CHARS_MAX in image.topics


@pytest.mark.parametrize("name", ["__cluster_metadata", "__anything"])
def test_names_of_the_nodes_own_topics_cannot_be_taken(image, name):
    with pytest.raises(InvalidRequest, match="the node's own"):
        create(image, name)


def test_a_topic_is_created_once(image):
    create(image)
    with pytest.raises(TopicExists):
        create(image)


@pytest.mark.parametrize("partitions", [0, -2, PARTITIONS_PER_TOPIC_MAX + 1])
def test_a_number_of_partitions_out_of_bounds_is_refused(image, partitions):
    with pytest.raises(InvalidRequest, match="partitions"):
        create(image, partitions=partitions)


def test_a_node_has_a_bound_on_its_partitions(image):
    for number in range(PARTITIONS_MAX // PARTITIONS_PER_TOPIC_MAX):
        create(image, f"t{number}", PARTITIONS_PER_TOPIC_MAX)
    with pytest.raises(LimitExceeded):
        create(image, "one-more", 1)


@pytest.mark.parametrize("factor", [0, 2, 3])
def test_more_replicas_than_nodes_are_refused(image, factor):
    with pytest.raises(InvalidRequest, match="1 node"):
        create(image, replication_factor=factor)


def test_an_unknown_setting_is_refused_with_the_nearest_name(image):
    with pytest.raises(InvalidRequest, match="did you mean flush"):
        create(image, config={"flsh": "ack"})


def test_validate_only_changes_nothing(image):
    reply = create(image, validate_only=True)
    assert (image.topics, reply.topic.name) == ({}, "orders")


def test_validate_only_refuses_what_a_creation_would(image):
    create(image)
    with pytest.raises(TopicExists):
        create(image, validate_only=True)


def test_added_partitions_follow_those_that_are_there(image):
    create(image, partitions=2)
    reply = done(image, add_partitions(image, AddPartitionsRequest("orders", 5), shards=2))
    assert [partition.index for partition in reply.topic.partitions] == [0, 1, 2, 3, 4]
    assert len({partition.partition for partition in reply.topic.partitions}) == 5


@pytest.mark.parametrize("partitions", [4, 3, 0, -1])
def test_a_topic_never_gets_fewer_partitions(image, partitions):
    create(image, partitions=4)
    with pytest.raises(InvalidRequest, match="can only grow"):
        add_partitions(image, AddPartitionsRequest("orders", partitions), shards=2)


def test_an_altered_setting_leaves_the_others(image):
    create(image, config={"flush": "os", "segment.ms": "1000"})
    reply = done(image, alter_topic(image, AlterTopicRequest("orders", {"flush": "ack"})))
    assert reply.topic.config == {"flush": "ack", "segment.ms": "1000"}


def test_none_takes_a_setting_back_to_its_default(image):
    create(image, config={"flush": "os"})
    assert done(image, alter_topic(image, AlterTopicRequest("orders", {"flush": None}))).topic.config == {}


def test_none_for_a_setting_that_is_not_there_is_refused(image):
    create(image)
    with pytest.raises(InvalidRequest, match="did you mean flush"):
        alter_topic(image, AlterTopicRequest("orders", {"flus": None}))


def test_a_refused_alteration_leaves_the_image_alone(image):
    create(image, config={"flush": "os"})
    with pytest.raises(InvalidRequest):
        alter_topic(image, AlterTopicRequest("orders", {"flush": "sometimes"}))
    assert image.topics["orders"].config == {"flush": "os"}


def test_a_deleted_topic_takes_its_partitions_with_it(image):
    create(image)
    done(image, delete_topic(image, DeleteTopicRequest("orders")))
    assert (image.topics, image.topics_by_id, image.partitions) == ({}, {}, {})


def test_the_nodes_own_topics_cannot_be_deleted(image):
    image.replay(Topic(1, "__offsets", {}))
    with pytest.raises(InvalidRequest, match="the node's own"):
        delete_topic(image, DeleteTopicRequest("__offsets"))


def test_a_topic_that_is_not_there_is_unknown_to_every_command(image):
    for call in (
        lambda: delete_topic(image, DeleteTopicRequest("ghost")),
        lambda: alter_topic(image, AlterTopicRequest("ghost", {})),
        lambda: add_partitions(image, AddPartitionsRequest("ghost", 2), shards=1),
    ):
        with pytest.raises(UnknownTopic, match="ghost"):
            call()


def test_ids_of_partitions_are_never_given_again(image):
    first = {p.partition for p in create(image).topic.partitions}
    done(image, delete_topic(image, DeleteTopicRequest("orders")))
    assert first.isdisjoint(p.partition for p in create(image).topic.partitions)


def next_id(image: MetadataImage, source: ProducerIdSource) -> int:
    reply = done(image, source.init_producer(image))
    assert isinstance(reply, InitProducerReply)
    return reply.producer_id


@given(st.lists(st.integers(0, 2 * PRODUCER_ID_BLOCK + 3), max_size=4))
def test_producer_ids_never_repeat_over_restarts(counts):
    log: list[ProducerIds] = []
    given_out: list[int] = []
    for count in counts:
        image, source = MetadataImage(), ProducerIdSource()
        for record in log:
            image.replay(record)
        for _ in range(count):
            outcome = source.init_producer(image)
            log += outcome.records
            given_out.append(done(image, outcome).producer_id)
    assert len(set(given_out)) == len(given_out)


def test_one_record_gives_out_a_block_of_producer_ids(image):
    source = ProducerIdSource()
    records = []
    for _ in range(PRODUCER_ID_BLOCK):
        outcome = source.init_producer(image)
        records += outcome.records
        done(image, outcome)
    assert records == [ProducerIds(PRODUCER_ID_BLOCK)]


def test_a_block_whose_record_was_not_appended_gives_out_nothing(image):
    source = ProducerIdSource()
    source.init_producer(image)  # and the log refused the record
    assert source.init_producer(image).records == [ProducerIds(PRODUCER_ID_BLOCK)]


@st.composite
def placed(draw):
    """An image whose partitions lie anywhere, and a number of shards."""
    image = MetadataImage()
    image.replay(Topic(1, "t", {}))
    for number, shard in enumerate(draw(st.lists(st.integers(0, 6), max_size=40))):
        image.replay(Partition(number + 1, 1, number, shard))
    return image, draw(st.integers(1, 7))


@given(placed())
def test_a_rebalance_leaves_shards_that_differ_by_one_at_most(case):
    image, shards = case
    for record in rebalance(image, shards):
        image.replay(record)
    loads = image.shard_loads(shards)
    assert sum(loads) == len(image.partitions)
    assert max(loads) - min(loads) <= 1


@given(placed())
def test_a_rebalance_moves_as_few_as_possible(case):
    image, shards = case
    before = sorted(image.shard_loads(shards), reverse=True)
    share, over = divmod(len(image.partitions), shards)
    kept = sum(min(load, share + (rank < over)) for rank, load in enumerate(before))
    assert len(rebalance(image, shards)) == len(image.partitions) - kept


@given(placed())
def test_a_balanced_node_moves_nothing(case):
    image, shards = case
    for record in rebalance(image, shards):
        image.replay(record)
    assert rebalance(image, shards) == []


def test_a_node_by_itself_refuses_a_topic_that_asks_for_more_replicas_in_sync_than_it_has(image):
    with pytest.raises(InvalidRequest, match="with 1 replica: nothing could ever be written"):
        create(image, config={"min.insync.replicas": "2"})
    create(image, config={"min.insync.replicas": "1"})
    with pytest.raises(InvalidRequest, match="nothing could ever be written"):
        alter_topic(image, AlterTopicRequest("orders", {"min.insync.replicas": "2"}))


@pytest.mark.parametrize("nodes", [None, 3])
def test_a_number_of_replicas_in_sync_that_is_none_is_refused(image, nodes):
    request = CreateTopicRequest("orders", 1, -1, {"min.insync.replicas": "two"})
    with pytest.raises(InvalidRequest, match=r"min\.insync\.replicas"):
        create_topic(image, request, shards=1, default_partitions=1, nodes=nodes)
