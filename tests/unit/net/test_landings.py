"""Replies to fetches that are put into a client's memory: they lie where the fetch said, or come as any other."""

from __future__ import annotations

import pytest

from ringlog.errors import InvalidRequest
from ringlog.limits import CLIENT_REPLY_BYTES_MAX
from ringlog.net.framing import HEADER_BYTES, Api, Flag
from ringlog.net.messages import ShareMemoryReply, ShareMemoryRequest, decode_body
from ringlog.net.near import LANDED, LANDING
from tests.support.net_world import SHARD_0, NetWorld, lend

POSITION, ROOM = 4096, 1024
LENT_BODY = b"head" + bytes([0, 1, 2, 3, 0, 1])
"""What `lend` answers with."""


def share(world: NetWorld, number: int = 7, *, writable: bool = True, who: bytes = b"ada") -> bytearray:
    made = world.near[number] = bytearray(64 * 1024)
    world.ask(Api.SHARE_MEMORY, ShareMemoryRequest(number, len(made), writable), who=who)
    (sent,) = world.take_sent()
    assert decode_body(sent.body, ShareMemoryReply) == ShareMemoryReply(len(made), writable)
    return made


@pytest.fixture
def memory(world) -> bytearray:
    """What the client b"ada" shares."""
    return share(world)


def fetch(world: NetWorld, position: int = POSITION, room: int = ROOM, **header: int) -> None:
    world.ask(
        Api.FETCH, LANDING.pack(position, room) + b"fetch", partition=1, flags=Flag.NEAR, **header
    )  # fmt: skip


def test_a_reply_lies_where_the_fetch_said_and_the_shard_sees_a_fetch_as_any_other(world, memory):
    world.service.now_us = 7_000_000
    world.ask(Api.FETCH, b"fetch", partition=1, deadline_ms=500, correlation=2)
    fetch(world, deadline_ms=500)
    (usual, _), (near, near_body) = world.requests(SHARD_0)
    assert near == usual._replace(correlation=1) and near_body == b"fetch"
    lend(world)
    world.pass_replies(SHARD_0)
    (sent,) = world.take_sent()
    assert sent.header.flags == Flag.REPLY | Flag.NEAR and sent.header.correlation == 1
    assert LANDED.unpack(sent.body) == (len(LENT_BODY),)
    assert memory[POSITION : POSITION + len(LENT_BODY)] == LENT_BODY
    assert not any(memory[:POSITION]) and not any(memory[POSITION + len(LENT_BODY) :])


def test_what_was_put_into_memory_counts_as_given_out_but_not_as_on_its_way(world, memory):
    peer = world.service.peers.seen(b"ada", 0)
    before, counts = peer.sent_bytes, world.stats.counts
    given = int(counts["bytes_out"])
    fetch(world)
    lend(world)
    world.pass_replies(SHARD_0)
    assert peer.sent_bytes - before == HEADER_BYTES + LANDED.size
    assert counts["near_bytes_out"] == len(LENT_BODY)
    assert counts["bytes_out"] - given == HEADER_BYTES + LANDED.size + len(LENT_BODY)


def test_a_reply_that_has_no_room_in_its_place_or_is_small_comes_through_the_socket(world, memory):
    fetch(world, room=len(LENT_BODY) - 1)
    lend(world)
    fetch(world, correlation=2)
    world.answer(SHARD_0, world.session_of(), 2, b"little", api=Api.FETCH)
    world.pass_replies(SHARD_0)
    sent = world.take_sent()
    assert [(one.header.flags, one.body) for one in sent] == [
        (Flag.REPLY, LENT_BODY),
        (Flag.REPLY, b"little"),
    ]
    assert not any(memory) and world.stats.counts["near_bytes_out"] == 0


@pytest.mark.parametrize(
    "body",
    [b"", LANDING.pack(0, 1)[:-1], LANDING.pack(64 * 1024, 1), LANDING.pack(2**64 - 1, 2**32 - 1)],
)
def test_what_names_no_place_in_the_memory_is_refused(world, memory, body):
    world.ask(Api.FETCH, body, partition=1, flags=Flag.NEAR)
    (sent,) = world.take_sent()
    assert sent.error.code == InvalidRequest.code
    assert world.requests(SHARD_0) == [] and world.service.peers.pending_count == 0


def test_nothing_is_written_to_memory_that_was_shared_to_be_read(world):
    share(world, writable=False)
    fetch(world)
    (sent,) = world.take_sent()
    assert sent.error.code == InvalidRequest.code


def test_who_shares_nothing_has_no_place_for_a_reply(world, memory):
    fetch(world, who=b"bob")
    (sent,) = world.take_sent()
    assert (sent.to, sent.error.code) == (b"bob", InvalidRequest.code)


def test_what_a_dead_shard_lent_is_not_told_of(world, memory):
    fetch(world)
    lend(world)
    world.dead.add(SHARD_0)
    world.pass_replies(SHARD_0)
    assert world.take_sent() == []
    world.connect(SHARD_0)
    (sent,) = world.take_sent()
    assert (sent.error.code, sent.header.flags & Flag.NEAR) == ("SHARD_UNAVAILABLE", 0)


def test_nothing_is_written_for_a_client_that_is_gone_or_was_answered_already(world, memory):
    fetch(world)
    lend(world)
    lend(world)
    world.pass_replies(SHARD_0)
    assert len(world.take_sent()) == 1
    memory[:] = bytes(len(memory))
    fetch(world, correlation=2)
    lend(world, correlation=2)
    lend(world, correlation=1)
    world.service.peers.left(b"ada")
    world.pass_replies(SHARD_0)
    assert world.take_sent() == [] and not any(memory)
    memory.append(0)  # BufferError while somebody has a view of it


def test_a_fetch_keeps_its_place_when_other_memory_is_shared_meanwhile(world, memory):
    peer = world.service.peers.seen(b"ada", 0)
    fetch(world)
    peer.sent_bytes += CLIENT_REPLY_BYTES_MAX + 1
    fetch(world, position=POSITION + ROOM, correlation=2)
    assert len(peer.held) == 1
    other = share(world, 8)
    lend(world)
    world.pass_replies(SHARD_0)
    world.service.peers.note_received(peer, peer.sent_bytes)
    world.service._take_held(peer)
    lend(world, correlation=2)
    world.pass_replies(SHARD_0)
    assert [one.header.flags & Flag.NEAR for one in world.take_sent()] == [Flag.NEAR, Flag.NEAR]
    assert memory[POSITION : POSITION + len(LENT_BODY)] == LENT_BODY
    assert memory[POSITION + ROOM : POSITION + ROOM + len(LENT_BODY)] == LENT_BODY
    assert not any(other)
