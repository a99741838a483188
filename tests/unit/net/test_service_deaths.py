"""When a process of the node dies, a network process answers for it, and trusts nothing that it left."""

from __future__ import annotations

from ringlog.controller.records import Partition
from ringlog.limits import BROKER_SESSION_MS
from ringlog.net.framing import Acks, Api
from ringlog.net.messages import (
    CreateTopicRequest,
    MetadataRequest,
)
from ringlog.net.service import STANDSTILL_LOOK_MS
from ringlog.shard.commands import NodeApi, pack_u64
from tests.support.net_world import CONTROLLER, SHARD_0, SHARD_1, fill_ring, lend


def test_what_a_dead_shard_had_not_answered_is_refused_at_once_and_retriably(world):
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL, correlation=1)
    world.ask(Api.PRODUCE, b"batch", partition=2, flags=Acks.ALL, correlation=2)
    world.connect(SHARD_0)
    (sent,) = world.take_sent()
    assert (sent.header.correlation, sent.error.code, sent.error.retriable) == (1, "SHARD_UNAVAILABLE", True)
    assert world.service.peers.pending_count == 1


def test_what_a_dead_shard_had_answered_is_delivered(world):
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    world.answer(SHARD_0, world.session_of(), 1, b"done")
    world.dead.add(SHARD_0)
    world.pass_replies(SHARD_0)
    world.connect(SHARD_0)
    (sent,) = world.take_sent()
    assert (sent.error, sent.body) == (None, b"done")


def test_memory_that_a_dead_shard_lent_is_not_trusted(world):
    world.ask(Api.FETCH, b"f", partition=1)
    lend(world)
    world.dead.add(SHARD_0)
    world.pass_replies(SHARD_0)
    assert world.take_sent() == []
    world.connect(SHARD_0)
    (sent,) = world.take_sent()
    assert (sent.error.code, sent.error.retriable) == ("SHARD_UNAVAILABLE", True)


def test_a_new_shard_gets_nothing_that_was_meant_for_the_dead_one(world):
    fill_ring(world)
    world.connect(SHARD_0)
    world.service.retry_overflow()
    assert world.requests(SHARD_0) == []
    assert (world.service.peers.pending_count, len(world.take_sent())) == (0, 100)


def test_a_new_shard_serves_the_next_request(world):
    world.connect(SHARD_0)
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    assert len(world.requests(SHARD_0)) == 1


def stand_still(world, *, but: int) -> None:
    """Let a session pass in which all processes but one make no pass."""
    service, rows = world.service, world.stats.page.rows
    for _ in range(BROKER_SESSION_MS // STANDSTILL_LOOK_MS + 1):
        service.now_us += STANDSTILL_LOOK_MS * 1000
        rows[but]["loops"] += 1
        service.refuse_misled()


def led_by(node: int, number: int, shard: int) -> Partition:
    return Partition(number, 1, number - 1, 0, 1, 1, (1, 2), (shard, 0), leader=node, isr=(2,))


def test_what_waits_for_a_shard_that_stands_still_is_refused_where_another_node_leads_by_now(world):
    world.delta(led_by(1, 1, 0), led_by(1, 2, 1))
    for partition in (1, 2):
        world.ask(Api.PRODUCE, b"batch", partition=partition, flags=Acks.ALL, correlation=partition)
    world.ask(Api.FETCH, b"f", partition=1, correlation=3)
    stand_still(world, but=SHARD_1)
    assert world.take_sent() == [], "it leads still, perhaps alone: whoever waits, waits"
    world.delta(led_by(2, 1, 0), led_by(2, 2, 1))
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL, correlation=4)
    stand_still(world, but=SHARD_1)
    refused = {one.header.correlation: (one.error.code, one.error.retriable) for one in world.take_sent()}
    assert refused == dict.fromkeys((1, 3, 4), ("NOT_LEADER", True)), "the other shard says so itself"
    world.answer(SHARD_0, world.session_of(), 1, b"late")
    world.pass_replies(SHARD_0)
    assert world.take_sent() == [], "a request is answered once"


def test_a_dead_controller_refuses_what_it_was_asked(world):
    world.ask(Api.CREATE_TOPIC, CreateTopicRequest("new"))
    world.connect(CONTROLLER)
    (sent,) = world.take_sent()
    assert (sent.error.code, sent.error.retriable) == ("CONTROLLER_UNAVAILABLE", True)


def test_shards_are_told_once_of_clients_whose_connections_have_ended(world):
    sessions = []
    for number, who in enumerate((b"ada", b"bob", b"eve")):
        world.ask(Api.METADATA, MetadataRequest([]), who=who, correlation=number)
        sessions.append(world.session_of(who))
    world.service.peers.left(b"ada")
    world.unreachable.add(b"bob")
    world.ask(Api.METADATA, MetadataRequest([]), who=b"bob")
    world.service.tell_gone()
    world.service.tell_gone()
    for shard in (SHARD_0, SHARD_1):
        ((header, body),) = world.requests(shard)
        assert (header.api_key, body) == (NodeApi.GONE, pack_u64(*sessions[:2]))
    assert world.requests(CONTROLLER) == []
