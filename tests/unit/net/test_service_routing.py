"""A network process takes requests where they belong, and refuses what it cannot take there."""

from __future__ import annotations

import pytest

from ringlog.controller.records import Partition, TopicRemoved
from ringlog.errors import StaleMetadata
from ringlog.net.framing import Acks, Api, Flag
from ringlog.net.messages import (
    CreateTopicRequest,
    decode_body,
)
from ringlog.shard.commands import NodeApi
from tests.support.net_world import CONTROLLER, SHARD_0, SHARD_1


def test_a_request_goes_to_the_shard_of_its_partition_with_the_clients_session(world):
    world.ask(Api.PRODUCE, b"batch", partition=2, flags=Acks.ALL, received=0)
    ((header, body),) = world.requests(SHARD_1)
    assert (header.partition, header.received, body) == (2, world.session_of(), b"batch")
    assert world.requests(SHARD_0) == []


def test_where_a_partition_was_found_counts_until_the_metadata_change(world):
    world.ask(Api.PRODUCE, b"first", partition=1, flags=Acks.ALL)
    world.delta(Partition(1, 1, 0, 1), version=6)
    world.ask(Api.PRODUCE, b"then", partition=1, flags=Acks.ALL, correlation=2)
    found = [[body for _, body in world.requests(process)] for process in (SHARD_0, SHARD_1)]
    assert found == [[b"first"], [b"then"]]
    world.delta(TopicRemoved(1), version=7)
    world.ask(Api.PRODUCE, b"late", partition=1, flags=Acks.ALL, correlation=3)
    (sent,) = world.take_sent()
    assert sent.error.code == StaleMetadata.code


def test_what_a_client_writes_where_its_session_goes_counts_for_nothing(world):
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL, received=4711)
    ((header, _),) = world.requests(SHARD_0)
    assert header.received == world.session_of() != 4711


def test_a_request_says_in_the_ring_when_its_client_gives_up(world):
    world.service.now_us = 7_000_000
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL, deadline_ms=500)
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL, correlation=2)
    world.ask(Api.CREATE_TOPIC, CreateTopicRequest("new"), correlation=3, deadline_ms=900)
    assert [header.deadline_ms for header, _ in world.requests(SHARD_0)] == [7_500, 0]
    assert [header.deadline_ms for header, _ in world.requests(CONTROLLER)] == [7_900]


def test_a_reply_goes_to_the_client_that_asked(world):
    for who in (b"ada", b"bob"):
        world.ask(Api.PRODUCE, b"batch", who=who, partition=1, flags=Acks.ALL)
    world.answer(SHARD_0, world.session_of(b"bob"), 1, b"for bob")
    world.pass_replies(SHARD_0)
    (sent,) = world.take_sent()
    assert (sent.to, sent.body, sent.header.correlation) == (b"bob", b"for bob", 1)


def test_a_request_is_answered_once(world):
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    for _ in range(2):
        world.answer(SHARD_0, world.session_of(), 1)
    world.pass_replies(SHARD_0)
    assert len(world.take_sent()) == 1


def test_an_unknown_partition_is_refused_so_that_the_client_asks_for_metadata(world):
    world.ask(Api.PRODUCE, b"batch", partition=99, flags=Acks.ALL)
    (sent,) = world.take_sent()
    assert (sent.error.code, sent.error.retriable) == (StaleMetadata.code, True)


def test_a_refused_request_without_acks_is_not_answered(world):
    world.ask(Api.PRODUCE, b"batch", partition=99, flags=Acks.NONE)
    assert world.take_sent() == []


@pytest.mark.parametrize("api", [max(Api) + 1, 77, *NodeApi])
def test_an_api_that_is_no_clients_is_refused(world, api):
    world.ask(api)
    (sent,) = world.take_sent()
    assert sent.error.code == "UNSUPPORTED_VERSION"
    assert world.requests(SHARD_0) == world.requests(CONTROLLER) == []


@pytest.mark.parametrize("flag", [Flag.REPLY, Flag.ERROR])
def test_a_request_that_claims_to_be_a_reply_is_refused(world, flag):
    world.ask(Api.FETCH, b"", partition=1, flags=flag)
    (sent,) = world.take_sent()
    assert sent.error.code == "INVALID_REQUEST"


@pytest.mark.parametrize("frame", [b"", b"short", b"\x01" * 40, b"\x09" + bytes(31)])
def test_bytes_that_are_no_frame_are_answered_with_a_typed_error(world, frame):
    world.service.take(b"ada", memoryview(frame))
    (sent,) = world.take_sent()
    assert sent.error.code in ("CORRUPT_FRAME", "UNSUPPORTED_VERSION")


def test_a_body_that_is_none_is_refused(world):
    world.ask(Api.METADATA, b"\xc1")
    (sent,) = world.take_sent()
    assert sent.error.code == "CORRUPT_FRAME"


def test_commands_go_to_the_controller(world):
    world.ask(Api.CREATE_TOPIC, CreateTopicRequest("new"))
    ((header, body),) = world.requests(CONTROLLER)
    assert (header.api_key, decode_body(body, CreateTopicRequest).name) == (Api.CREATE_TOPIC, "new")


def test_a_client_that_left_is_forgotten_when_it_is_answered(world):
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    world.ask(Api.PRODUCE, b"batch", partition=2, flags=Acks.ALL, correlation=2)
    world.unreachable.add(b"ada")
    world.answer(SHARD_0, world.session_of(), 1)
    world.pass_replies(SHARD_0)
    peers = world.service.peers
    assert (len(peers), peers.in_flight_bytes, peers.pending_count) == (0, 0, 0)
