"""Batches that lie in a client's memory: shards are told where, and nothing that cannot be there reaches them."""

from __future__ import annotations

import struct

import pytest

from ringlog.errors import CorruptFrame, InvalidRequest, LimitExceeded
from ringlog.limits import FRAME_BYTES_MAX
from ringlog.net import service as service_module
from ringlog.net.framing import HEADER_BYTES, Acks, Api, Flag
from ringlog.net.messages import ShareMemoryReply, ShareMemoryRequest, decode_body
from ringlog.net.near import PLACE, NearBatch, SharedMemory, named_batch, place_of
from ringlog.records.encode import encode
from ringlog.shard.commands import NodeApi
from tests.support.net_world import CLIENT_PROCESS, SHARD_0, fill_ring

BATCH = bytes(encode([b"near"] * 10, timestamps=17))
POSITION = 4096
NEAR = Flag.NEAR | Acks.ALL


@pytest.fixture
def memory(world) -> bytearray:
    """What the client b"ada" shares; a batch lies at POSITION."""
    made = bytearray(64 * 1024)
    made[POSITION : POSITION + len(BATCH)] = BATCH
    world.near[7] = made
    world.ask(Api.SHARE_MEMORY, ShareMemoryRequest(7, len(made)))
    (sent,) = world.take_sent()
    assert decode_body(sent.body, ShareMemoryReply).nbytes == len(made)
    return made


def place(position: int = POSITION, nbytes: int = len(BATCH), crc: bytes = BATCH[17:21]) -> bytes:
    return PLACE.pack(position, nbytes, crc)


def test_a_shard_is_told_where_the_batch_lies_and_whose_memory_that_is(world, memory):
    world.service.now_us = 7_000_000
    world.ask(Api.PRODUCE, BATCH, partition=1, flags=Acks.ALL, deadline_ms=500)
    world.ask(Api.PRODUCE, place(), partition=1, flags=NEAR, deadline_ms=500, correlation=2)
    (sent, _), (near, near_body) = world.requests(SHARD_0)
    assert near == sent._replace(correlation=2, flags=NEAR, body_bytes=len(near_body))
    shared = SharedMemory(1, CLIENT_PROCESS, 7, len(memory))
    assert named_batch(memoryview(near_body)) == NearBatch(POSITION, len(BATCH), BATCH[17:21], shared)
    assert world.stats.counts["near_bytes_in"] == HEADER_BYTES + len(BATCH)
    world.answer(SHARD_0, world.session_of(), 2)
    world.pass_replies(SHARD_0)
    assert [one.header.correlation for one in world.take_sent()] == [2]


def test_memory_that_is_shared_anew_has_another_number(world, memory):
    world.ask(Api.SHARE_MEMORY, ShareMemoryRequest(7, len(memory)))
    world.take_sent()
    world.ask(Api.PRODUCE, place(), partition=1, flags=NEAR)
    ((_, body),) = world.requests(SHARD_0)
    assert named_batch(memoryview(body)).memory.number == 2


@pytest.mark.parametrize("nbytes", [FRAME_BYTES_MAX + 1, 4096])
def test_a_shard_believes_no_name_that_cannot_be(nbytes):
    named = struct.pack("<QI4sQIIQ", 4096, nbytes, b"crc.", 1, 2, 3, 8000)
    for body in (named, named[:-1], named + b"x"):
        with pytest.raises(CorruptFrame):
            named_batch(memoryview(body))


def test_a_client_names_the_batch_behind_the_room_for_a_header():
    assert place_of(bytearray(HEADER_BYTES) + BATCH, POSITION) == place()


def test_it_counts_against_the_clients_bounds_with_all_its_bytes(world, memory):
    world.ask(Api.PRODUCE, place(), partition=1, flags=NEAR)
    assert world.service.peers.in_flight_bytes == HEADER_BYTES + len(BATCH)


def test_while_a_ring_is_full_only_its_name_waits(world, memory):
    fill_ring(world)
    world.ask(Api.PRODUCE, place(), partition=1, flags=NEAR, correlation=1000)
    bodies: list[bytes] = []
    while len(bodies) < 101:
        bodies += [body for _, body in world.requests(SHARD_0)]
        world.service.retry_overflow()
    assert named_batch(memoryview(bodies[-1])).position == POSITION
    assert world.take_sent() == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        place()[:-1],
        place() + b"x",
        BATCH,
        place(position=64 * 1024 - len(BATCH) + 1),
        place(position=2**64 - 1),
        place(nbytes=60),
        place(nbytes=2**32 - 1),
        place(nbytes=FRAME_BYTES_MAX),
    ],
)
def test_what_names_no_batch_in_the_memory_is_refused(world, memory, body):
    world.ask(Api.PRODUCE, body, partition=1, flags=NEAR)
    (sent,) = world.take_sent()
    assert sent.error.code == InvalidRequest.code
    assert world.requests(SHARD_0) == []
    assert world.service.peers.pending_count == 0


def test_a_batch_elsewhere_wants_an_answer(world, memory):
    world.ask(Api.PRODUCE, place(), partition=1, flags=Flag.NEAR | Acks.NONE)
    assert world.take_sent() == [] and world.requests(SHARD_0) == []
    assert world.stats.counts["errors"] == 1


def test_who_is_gone_is_told_behind_what_waits_for_room(world, memory):
    fill_ring(world)
    world.ask(Api.PRODUCE, place(), partition=1, flags=NEAR, correlation=1000)
    world.service.peers.left(b"ada")
    world.service.tell_gone()
    found = []
    while len(found) < 102:
        found += [(header.api_key, header.correlation) for header, _ in world.requests(SHARD_0)]
        world.service.retry_overflow()
    assert found[-2:] == [(Api.PRODUCE, 1000), (NodeApi.GONE, 0)]


def test_who_shares_nothing_must_send_its_batches(world, memory):
    world.ask(Api.PRODUCE, place(), partition=1, flags=NEAR, who=b"bob")
    (sent,) = world.take_sent()
    assert (sent.to, sent.error.code) == (b"bob", InvalidRequest.code)


def test_the_flag_means_nothing_to_other_requests(world, memory):
    world.ask(Api.LIST_OFFSETS, b"body", partition=1, flags=Flag.NEAR)
    assert [body for _, body in world.requests(SHARD_0)] == [b"body"]


def test_memory_is_let_go_of_with_its_client_and_bounded_in_number(world, memory, monkeypatch):
    monkeypatch.setattr(service_module, "NEAR_MEMORIES_MAX", 1)
    world.ask(Api.SHARE_MEMORY, ShareMemoryRequest(7, 4096), who=b"bob")
    (sent,) = world.take_sent()
    assert sent.error.code == LimitExceeded.code
    world.ask(Api.SHARE_MEMORY, ShareMemoryRequest(7, 4096))  # again: it takes the place of its own
    assert world.take_sent()[0].error is None
    world.service.peers.left(b"ada")
    assert world.service.peers.near_count == 0
    world.ask(Api.SHARE_MEMORY, ShareMemoryRequest(7, 4096), who=b"bob")
    assert world.take_sent()[0].error is None
