"""A network process answers for metadata itself, and has missing topics made."""

from __future__ import annotations

from ringlog.controller.records import Partition, Topic
from ringlog.errors import Overloaded, RinglogError, TopicExists
from ringlog.net.framing import Acks, Api, Flag
from ringlog.net.messages import (
    CreateTopicRequest,
    MetadataReply,
    MetadataRequest,
    decode_body,
    encode_body,
)
from ringlog.net.wire_errors import error_reply
from tests.support.net_world import CONTROLLER, RING, SHARD_0, NetWorld, Sent


def metadata(sent: Sent) -> MetadataReply:
    assert sent.error is None
    return decode_body(sent.body, MetadataReply)


def test_metadata_is_answered_here(world):
    world.ask(Api.METADATA, MetadataRequest())
    reply = metadata(*world.take_sent())
    assert (reply.cluster_id, reply.version, [topic.name for topic in reply.topics]) == ("cluster", 5, ["t"])
    assert [(p.partition, p.lane) for p in reply.topics[0].partitions] == [(1, 0), (2, 1)]


def test_a_topic_that_is_not_there_is_named_with_its_error(world):
    world.ask(Api.METADATA, MetadataRequest(["t", "ghost"]))
    reply = metadata(*world.take_sent())
    assert [(topic.name, topic.error) for topic in reply.topics] == [("t", ""), ("ghost", "UNKNOWN_TOPIC")]


def answer_creation(world: NetWorld, error: RinglogError | None = None) -> None:
    """The controller creates, or refuses, the first topic that it is asked for."""
    for header, body in world.requests(CONTROLLER):
        assert header.received == 0, "the answer comes back to the network process itself"
        name = decode_body(body, CreateTopicRequest).name
        if error is not None and name.startswith("bad"):
            body, flags = encode_body(error_reply(error)), Flag.ERROR
        else:
            number = 10 + header.correlation
            world.delta(Topic(number, name, {}), Partition(number, number, 0, 0), version=6)
            body, flags = b"", 0
        world.answer(CONTROLLER, 0, header.correlation, body, api=Api.CREATE_TOPIC, flags=flags)
    world.pass_replies(CONTROLLER)


def test_a_missing_topic_is_created_for_whoever_asks_so(world):
    world.ask(Api.METADATA, MetadataRequest(["t", "new"], create=True))
    assert world.take_sent() == []
    answer_creation(world)
    reply = metadata(*world.take_sent())
    assert [(topic.name, topic.error, len(topic.partitions)) for topic in reply.topics] == [
        ("t", "", 2),
        ("new", "", 1),
    ]
    assert world.service.peers.pending_count == 0


def test_who_asks_for_a_topic_that_another_is_having_made_waits_for_it_too(world):
    world.ask(Api.METADATA, MetadataRequest(["new"], create=True))
    ((header, _),) = world.requests(CONTROLLER)
    exists = encode_body(error_reply(TopicExists("topic 'new' is there already")))
    world.answer(CONTROLLER, 0, header.correlation, exists, api=Api.CREATE_TOPIC, flags=Flag.ERROR)
    world.pass_replies(CONTROLLER)
    assert world.take_sent() == [], "it is on its way, and not unknown"
    world.delta(Topic(11, "new", {}), Partition(11, 11, 0, 0), version=6)
    world.pass_replies(CONTROLLER)
    (topic,) = metadata(*world.take_sent()).topics
    assert (topic.name, topic.error, len(topic.partitions)) == ("new", "", 1)
    assert world.service.peers.pending_count == 0


def test_a_topic_is_not_made_for_a_client_that_has_given_up(world):
    world.service.now_us = 7_000_000
    world.ask(Api.METADATA, MetadataRequest(["new"], True), deadline_ms=500)
    assert [header.deadline_ms for header, _ in world.requests(CONTROLLER)] == [7_500]


def test_each_topic_that_cannot_be_created_has_its_own_error(world):
    world.ask(Api.METADATA, MetadataRequest(["good", "bad/name"], create=True))
    answer_creation(world, Overloaded("later"))
    reply = metadata(*world.take_sent())
    assert [(topic.name, topic.error) for topic in reply.topics] == [("good", ""), ("bad/name", "OVERLOADED")]


def test_a_name_too_long_for_any_topic_does_not_reach_the_controller(world):
    world.ask(Api.METADATA, MetadataRequest(["x" * 100_000, "new"], create=True))
    answer_creation(world)
    reply = metadata(*world.take_sent())
    assert [topic.error for topic in reply.topics] == ["INVALID_REQUEST", ""]
    world.ask(Api.METADATA, MetadataRequest(["x" * 100_000], create=True))
    assert [topic.error for topic in metadata(*world.take_sent()).topics] == ["INVALID_REQUEST"]
    assert (world.service.peers.pending_count, world.requests(CONTROLLER)) == (0, [])


def test_a_request_that_fits_no_ring_is_refused_and_owes_nothing(world):
    world.ask(Api.PRODUCE, bytes(RING), partition=1, flags=Acks.ALL)
    (sent,) = world.take_sent()
    assert (sent.error.code, world.service.peers.pending_count) == ("INVALID_REQUEST", 0)


def test_a_topic_is_not_created_where_that_is_forbidden(world):
    world.facts.auto_create = False
    world.ask(Api.METADATA, MetadataRequest(["new"], create=True))
    assert [topic.error for topic in metadata(*world.take_sent()).topics] == ["UNKNOWN_TOPIC"]


def test_a_creation_under_a_correlation_in_use_harms_nobody(world):
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    world.ask(Api.METADATA, MetadataRequest(["new"], create=True))
    (sent,) = world.take_sent()
    assert (sent.error.code, world.requests(CONTROLLER)) == ("INVALID_REQUEST", [])
    world.answer(SHARD_0, world.session_of(), 1, b"done")
    world.pass_replies(SHARD_0)
    assert [sent.body for sent in world.take_sent()] == [b"done"]


def test_whoever_waits_for_a_creation_is_told_when_the_controller_dies(world):
    world.ask(Api.METADATA, MetadataRequest(["new"], create=True))
    world.connect(CONTROLLER)
    (sent,) = world.take_sent()
    assert (sent.error.code, sent.error.retriable) == ("CONTROLLER_UNAVAILABLE", True)


def test_requests_and_bytes_are_counted(world):
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    world.answer(SHARD_0, world.session_of(), 1, bytes(100))
    world.pass_replies(SHARD_0)
    counts = world.stats.counts
    assert (counts["requests"], counts["bytes_in"], counts["bytes_out"]) == (1, 37, 132)
