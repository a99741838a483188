"""Batches in the memory of clients: a shard appends a copy that it has checked, or nothing."""

from __future__ import annotations

import struct

import pytest

from ringlog.errors import CorruptBatch, CorruptFrame, InvalidRequest, NotLeader, RequestTimeout
from ringlog.net.framing import Acks, Api, Flag
from ringlog.net.messages import ProduceReply
from ringlog.records.decode import decode
from ringlog.ring.drain import NO_PARTITION
from ringlog.ring.frame import frame_header
from ringlog.shard.commands import NodeApi, node_frame, pack_u64
from ringlog.shard.near_batches import NearBatches
from tests.support.replica_calls import produce
from tests.support.shard_cluster import ShardCluster
from tests.support.shard_world import FakeOutlet, ShardWorld, batch_of

POSITION, PROCESS, DESCRIPTOR, MEMORY_BYTES = 4096, 11, 5, 64 * 1024
NEAR = Flag.NEAR | Acks.ALL


class Client:
    """Memory with a batch in it, and requests that name it."""

    def __init__(self, world: ShardWorld, *values: bytes, producer=None) -> None:
        self.world = world
        self.memory = bytearray(MEMORY_BYTES)
        self.batch = bytes(batch_of(*values, timestamp=world.now_ms, producer=producer))
        self.memory[POSITION : POSITION + len(self.batch)] = self.batch
        world.near[PROCESS, DESCRIPTOR] = memoryview(self.memory).toreadonly()

    def named(self, *, position: int = POSITION, number: int = 1, crc: bytes | None = None) -> bytes:
        crc = self.batch[17:21] if crc is None else crc
        place = (position, len(self.batch), crc, number, PROCESS, DESCRIPTOR, MEMORY_BYTES)
        return struct.pack("<QI4sQIIQ", *place)

    def produce(
        self, body: bytes | None = None, *, session: int = 7, flags: int = NEAR, **header: object
    ) -> int:
        body = self.named() if body is None else body
        return self.world.send(Api.PRODUCE, body, session=session, flags=flags, **header)


@pytest.fixture
def world() -> ShardWorld:
    made = ShardWorld()
    made.create(1)
    return made


def test_a_batch_is_appended_from_where_it_lies(world):
    client = Client(world, b"one", b"two", producer=(5, 0, 0))
    client.produce()
    client.memory[:] = bytes(MEMORY_BYTES)  # it may be used again as soon as it is taken
    world.settle()
    (reply,) = world.net.take()
    assert (reply.error, ProduceReply.unpack(reply.body).base_offset) == (None, 0)
    assert world.log().next_offset == 2
    world.fetch((1, 0))
    _, rows = world.only_fetched()
    assert bytes(rows[1].data)[17:] == client.batch[17:]
    assert world.stats.counts["bytes_in"] == len(client.batch)


def test_a_repeated_batch_is_answered_with_its_first_offset(world):
    client = Client(world, b"one", producer=(5, 0, 0))
    client.produce()
    world.settle()
    client.produce()
    world.settle()
    first, again = (ProduceReply.unpack(reply.body) for reply in world.net.take())
    assert (first.base_offset, again.base_offset, again.repeated) == (0, 0, 1)
    assert world.log().next_offset == 1


def refused(world: ShardWorld) -> type:
    (reply,) = world.net.take()
    assert reply.error is not None and world.log().next_offset == 0
    return reply.error.code


def test_another_batch_in_its_place_is_not_taken_for_it(world):
    client = Client(world, b"one")
    other = bytes(batch_of(b"two", timestamp=world.now_ms))
    client.memory[POSITION : POSITION + len(other)] = other
    client.produce()
    assert refused(world) == RequestTimeout.code


def test_a_torn_batch_with_the_right_name_is_refused(world):
    client = Client(world, b"one")
    client.memory[POSITION + len(client.batch) - 1] ^= 1
    client.produce()
    assert refused(world) == CorruptBatch.code


def test_a_large_batch_goes_to_where_the_log_wants_it_and_a_torn_one_leaves_no_trace(world):
    values = [bytes([number]) * 50_000 for number in range(6)]
    for number, value in enumerate(values):
        client = Client(world, value)
        if number == 3:
            client.memory[POSITION + 5_000] ^= 1
        client.produce(session=number)  # each has memory of its own
    world.settle()
    assert [reply.error.code for reply in world.net.take() if reply.error] == [CorruptBatch.code]
    world.fetch((1, 0))
    _, rows = world.only_fetched()
    assert [r.value for r in decode(bytes(rows[1].data))] == [v for n, v in enumerate(values) if n != 3]


def test_a_large_batch_is_copied_once(world):
    world.fill(b"first")  # the partition has memory from now on
    client = Client(world, bytes(50_000))
    client.produce()
    assert not any(world.room), "it went straight to its log"
    world.settle()
    (reply,) = world.net.take()
    assert (reply.error, world.log().next_offset) == (None, 2)


def test_large_batches_that_are_refused_keep_no_memory(world):
    world.fill(b"first")
    before = world.store.memory_free_bytes
    client = Client(world, bytes(50_000))
    client.memory[POSITION + 5_000] ^= 1
    client.produce()
    (reply,) = world.net.take()
    assert reply.error is not None and reply.error.code == CorruptBatch.code
    assert not any(world.room) and world.store.memory_free_bytes >= before


def test_a_large_batch_is_not_put_into_the_log_of_one_who_only_follows():
    cluster = ShardCluster()
    cluster.run()
    produce(cluster, 1, b"first")
    cluster.run()
    world = cluster.worlds[2]
    client = Client(world, bytes(50_000))
    client.produce()
    (reply,) = world.net.take()
    assert reply.error is not None and reply.error.code == NotLeader.code
    assert world.room[: len(client.batch)] == client.batch


def test_a_name_that_cannot_be_is_refused_and_nothing_is_mapped(world):
    client = Client(world, b"one")
    for body in (b"", client.named()[:-1], client.named(position=MEMORY_BYTES)):
        client.produce(body)
        assert refused(world) == CorruptFrame.code
    assert len(world.core.near) == 0


def test_a_request_that_nobody_waits_for_is_not_looked_at(world):
    client = Client(world, b"one")
    client.produce(due_ms=world.now_ms - 1)
    assert refused(world) == RequestTimeout.code
    assert len(world.core.near) == 0


def test_what_wants_no_answer_gets_none_also_when_it_is_gone(world):
    client = Client(world, b"one")
    client.produce(client.named(crc=b"none"), flags=Flag.NEAR | Acks.NONE)
    assert world.net.take() == []


def test_memory_is_mapped_once_until_another_is_shared_in_its_place(world):
    maps: list[int] = []
    memory = memoryview(bytes(MEMORY_BYTES))

    def map_memory(_process: int, descriptor: int, _nbytes: int) -> memoryview:
        maps.append(descriptor)
        return memory

    near, net = NearBatches(map_memory, memoryview(bytearray(MEMORY_BYTES))), FakeOutlet()
    for number, session in ((1, 7), (1, 7), (2, 7), (2, 8)):
        named = struct.pack("<QI4sQIIQ", 0, 100, bytes(4), number, PROCESS, session, MEMORY_BYTES)
        copy, row = near.take(net, session, memoryview(named), lambda nbytes: None)
        assert len(copy) == 100 and row[17] != 0, "there is no batch"
    assert maps == [7, 7, 8]


def test_memory_is_let_go_of_with_its_client_or_its_network_process(world):
    client = Client(world, b"one")
    for session, outlet in ((7, world.net), (8, world.net), (7, world.other_net)):
        client.produce(session=session, outlet=outlet)
    assert len(world.core.near) == 3
    world.send(NodeApi.GONE, pack_u64(8, 9), session=0, partition=NO_PARTITION)
    assert len(world.core.near) == 2
    world.core.forget(world.net)
    assert len(world.core.near) == 1
    world.core.forget(world.other_net)
    del world.near[PROCESS, DESCRIPTOR]
    client.memory.append(0)  # BufferError while somebody has a view of it


def test_who_is_gone_is_forgotten_behind_what_it_asked_for_in_the_same_drain(world):
    client = Client(world, b"one")
    frames = [
        frame_header(
            api_key=Api.PRODUCE,
            partition=1,
            correlation=1,
            session=7,
            flags=NEAR,
            body_bytes=len(client.named()),
        )
        + client.named(),
        node_frame(NodeApi.GONE, pack_u64(7), partition=NO_PARTITION),
    ]
    world.send_together(*frames)
    world.settle()
    assert world.log().next_offset == 1 and len(world.core.near) == 0


def test_memory_that_cannot_be_mapped_refuses_its_batches_alone_and_retriably(world):
    def refuse(process: int, descriptor: int, nbytes: int) -> memoryview:
        raise InvalidRequest("its process is gone")

    world.core.near = NearBatches(refuse, world.room)
    Client(world, b"one").produce()
    (reply,) = world.net.take()
    assert reply.error is not None and (reply.error.code, reply.error.retriable) == (
        RequestTimeout.code,
        True,
    )
    world.fill(b"sent as ever")
    assert world.log().next_offset == 1
