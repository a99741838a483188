"""The admin against a ROUTER in a thread."""

from __future__ import annotations

import pytest

from ringlog import Admin, Producer
from ringlog.errors import ControllerUnavailable, InvalidRequest, StaleMetadata, TopicExists, UnknownTopic
from ringlog.net.framing import Api
from ringlog.net.messages import (
    DescribePartitionsReply,
    DescribePartitionsRequest,
    PartitionDescription,
    decode_body,
    encode_body,
)
from ringlog.net.wire_errors import number_of


@pytest.fixture
def admin(node):
    with Admin(node.bootstrap) as made:
        yield made


def test_a_topic_is_created_with_its_settings(admin):
    topic = admin.create_topic("t", num_partitions=3, config={"segment.bytes": 1 << 20, "x": True})
    assert (topic.name, topic.config) == ("t", {"segment.bytes": "1048576", "x": "true"})
    assert [one.index for one in topic.partitions] == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("t", "3"), "partitions"),
        ((b"t", 3), "name"),
        (("t", 3, 1.5), "replication_factor"),
        (("t", 2**70), "partitions"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named_and_nothing_is_sent(node, admin, arguments, named):
    with pytest.raises(InvalidRequest, match=f"^{named} = "):
        admin.create_topic(*arguments)
    assert not node.topics


def test_a_topic_that_is_there_cannot_be_created_again(admin):
    admin.create_topic("t")
    with pytest.raises(TopicExists):
        admin.create_topic("t")


def test_a_create_whose_answer_was_lost_is_done(node, admin):
    lost = [True]

    def lose(header, body):
        if header.api_key == Api.CREATE_TOPIC and lost:
            lost.pop()
            node.answer(header, body)
            raise ControllerUnavailable("died")

    node.before = lose
    assert len(admin.create_topic("t", 2).partitions) == 2


def test_a_delete_whose_answer_was_lost_is_done(node, admin):
    admin.create_topic("t")
    lost = [True]

    def lose(header, body):
        if header.api_key == Api.DELETE_TOPIC and lost:
            lost.pop()
            node.answer(header, body)
            raise ControllerUnavailable("died")

    node.before = lose
    admin.delete_topic("t")
    assert admin.list_topics() == []


def test_topics_are_listed_without_those_of_the_node(node, admin):
    for name in ("b", "a", "__inner"):
        node.create(name)
    assert admin.list_topics() == ["a", "b"]
    assert admin.list_topics(include_internal=True) == ["__inner", "a", "b"]


def test_a_description_tells_offsets_and_bytes(node, admin):
    admin.create_topic("t", 2)
    with Producer(node.bootstrap) as producer:
        producer.produce("t", b"x", partition=1).result(5)
    first, second = admin.describe_topic("t").partitions
    assert (first.next_offset, second.next_offset, second.high_watermark) == (0, 1, 1)
    assert second.bytes > 0


def test_settings_change_and_go_back(admin):
    admin.create_topic("t", config={"a": "1"})
    assert admin.alter_topic("t", {"a": None, "b": 2}).config == {"b": "2"}


def test_partitions_are_added(admin):
    admin.create_topic("t", 2)
    assert len(admin.add_partitions("t", 5).partitions) == 5


def test_what_is_not_there_is_an_error(admin):
    with pytest.raises(UnknownTopic):
        admin.describe_topic("t")
    with pytest.raises(UnknownTopic):
        admin.delete_topic("t")
    with pytest.raises(InvalidRequest, match="config"):
        admin.create_topic("t", config={"a": object()})


def test_the_cluster_says_who_it_is(node, admin):
    admin.create_topic("t", 3)
    cluster = admin.describe_cluster()
    assert (cluster.cluster_id, cluster.topics, cluster.partitions) == ("test", 1, 3)
    assert node.endpoint in cluster.endpoints


def test_records_are_deleted_lane_by_lane_and_the_new_starts_come_back(node, admin):
    admin.create_topic("t", num_partitions=3)
    assert admin.delete_records("t", {0: 7, 1: -1, 2: 9}) == {0: 7, 1: 0, 2: 9}


def test_a_deletion_that_may_succeed_later_is_tried_again(node, admin):
    admin.create_topic("t", num_partitions=1)
    lost = [True]

    def refuse(header, body):
        if header.api_key == Api.DELETE_RECORDS and lost:
            lost.pop()
            raise StaleMetadata("moved")

    node.before = refuse
    assert admin.delete_records("t", {0: 3}) == {0: 3}
    assert not lost


def test_records_of_a_partition_that_is_not_there_are_not_deleted(admin):
    admin.create_topic("t", num_partitions=1)
    with pytest.raises(UnknownTopic):
        admin.delete_records("t", {5: 3})


@pytest.mark.parametrize("wrong", [5, [3], {"0": 3}, {None: 3}])
def test_records_are_deleted_by_the_number_of_their_partition(admin, wrong):
    admin.create_topic("t", num_partitions=1)
    with pytest.raises(InvalidRequest, match="a dict of partitions' numbers"):
        admin.delete_records("t", wrong)


def test_a_group_is_named_by_text(admin):
    with pytest.raises(InvalidRequest, match="group_id must be a str, not 5"):
        admin.describe_group(5)


def closed(header, body, times):
    """The answer of a node whose shard is being restarted: it says so of each partition, once for each of `times`."""
    if header.api_key != Api.DESCRIBE_PARTITIONS or not times:
        return None
    times.pop()
    asked = decode_body(body, DescribePartitionsRequest).partitions
    stale = number_of(StaleMetadata("closed"))
    rows = [PartitionDescription(one, stale, -1, -1, -1, 0, 0, "closed") for one in asked]
    return encode_body(DescribePartitionsReply(rows))


def test_a_partition_that_is_closed_for_a_moment_is_described_when_it_is_open(node, admin):
    admin.create_topic("t", num_partitions=2)
    times = [1]
    node.before = lambda header, body: closed(header, body, times)
    assert [one.next_offset for one in admin.describe_topic("t").partitions] == [0, 0]
    assert not times


def test_a_partition_that_stays_closed_is_not_waited_for_without_end(node, admin):
    admin.create_topic("t", num_partitions=1)
    node.before = lambda header, body: closed(header, body, [1])
    (found,) = admin.describe_topic("t", timeout=0.3).partitions
    assert (found.is_known, found.status, found.next_offset) == (False, "no answer", -1)
