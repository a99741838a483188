"""A network process between its socket and its rings: routes, holds back, survives deaths, keeps clients apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

from ringlog.controller.records import Delta, Identity, Partition, Topic, encode_delta
from ringlog.errors import Overloaded, RinglogError, StaleMetadata
from ringlog.limits import CLIENT_REPLY_BYTES_MAX, HELD_FETCHES_MAX, KIB
from ringlog.net import service as service_module
from ringlog.net.framing import HEADER_BYTES, Acks, Api, Flag, Header, pack_header, unpack_header
from ringlog.net.messages import (
    CreateTopicRequest,
    ErrorReply,
    MetadataReply,
    MetadataRequest,
    decode_body,
    encode_body,
)
from ringlog.net.service import NetService, NodeFacts
from ringlog.net.wire_errors import error_reply
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.frame import frame_header
from ringlog.ring.link import LinkEnd, create_link
from ringlog.ring.stats import Stats, StatsPage
from ringlog.shard.commands import LENT, NodeApi, node_frame, pack_lent, unpack_u64

CONTROLLER, SHARD_0, SHARD_1 = 0, 2, 3
RING = 64 * KIB


class Sent(NamedTuple):
    """A message to a client."""

    to: bytes
    header: Header
    body: bytes

    @property
    def error(self) -> ErrorReply | None:
        return decode_body(self.body, ErrorReply) if self.header.flags & Flag.ERROR else None


class NetWorld:
    """A NetService with real rings to a controller and two shards; this test is at their other ends."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.unreachable: set[bytes] = set()
        self.dead: set[int] = set()
        self.stats = Stats(StatsPage(memoryview(bytearray(StatsPage.bytes_needed(1))), 1), 0)
        self.service = NetService(
            NodeFacts(["tcp://127.0.0.1:1"], "host", auto_create=True, topic_defaults={}),
            self.stats,
            controller=CONTROLLER,
            shard_process=lambda shard: SHARD_0 + shard,
            send=self._send,
            intact=lambda process: process not in self.dead,
        )
        self.bell = Doorbell.create()
        self.fronts: dict[int, LinkEnd] = {}
        self.backs: dict[int, LinkEnd] = {}
        self.region = bytearray(range(256)) * 16
        self._generation = 0
        self._open: list[LinkEnd] = []
        for process in (CONTROLLER, SHARD_0, SHARD_1):
            self.connect(process)
        records = [Identity("cluster", 1), Topic(1, "t", {}), Partition(1, 1, 0, 0), Partition(2, 1, 1, 1)]
        self.delta(*records, full=True)

    def _send(self, routing_id: bytes, message: bytes | bytearray) -> bool:
        if routing_id in self.unreachable:
            return False
        self.sent.append(Sent(routing_id, unpack_header(message), bytes(message[HEADER_BYTES:])))
        return True

    def connect(self, process: int) -> None:
        """A process begins, or begins anew."""
        self._generation += 1
        memory = create_link("unit", request_bytes=RING, reply_bytes=RING, generation=self._generation)
        front, back = (
            LinkEnd(memory.name, self._generation, side, request_bytes=RING, peer_bell=self.bell)
            for side in ("front", "back")
        )
        memory.unlink()
        memory.close()
        self._open += [front, back]
        self.fronts[process], self.backs[process] = front, back
        self.service.connect(process, front, memoryview(self.region) if process != CONTROLLER else None)

    def close(self) -> None:
        for end in self._open:
            end.close()
        self.bell.close()

    # -- clients -----------------------------------------------------------------------------------------------

    def ask(
        self,
        api: int,
        body: bytes | msgspec.Struct = b"",
        *,
        who: bytes = b"ada",
        correlation: int = 1,
        **header: int,
    ) -> None:
        data = encode_body(body) if isinstance(body, msgspec.Struct) else body
        frame = pack_header(api, correlation=correlation, body_bytes=len(data), **header) + data
        self.service.take(who, memoryview(frame))

    def take_sent(self) -> list[Sent]:
        sent, self.sent = self.sent, []
        return sent

    # -- processes ---------------------------------------------------------------------------------------------

    def requests(self, process: int) -> list[tuple[Header, bytes]]:
        """What a process finds in its ring; `received` of the header is the session there."""
        reader = self.backs[process].reader
        found = [(unpack_header(bytes(m.body)), bytes(m.body[HEADER_BYTES:])) for m in reader.read_all()]
        reader.release()
        return found

    def answer(
        self,
        process: int,
        session: int,
        correlation: int,
        body: bytes = b"ok",
        *,
        api: int = Api.PRODUCE,
        flags: int = 0,
    ) -> None:
        header = frame_header(
            api_key=api,
            partition=1,
            correlation=correlation,
            session=session,
            flags=Flag.REPLY | flags,
            body_bytes=len(body),
        )
        self.backs[process].send(header + body)

    def delta(self, *records, full: bool = False, version: int = 5) -> None:
        self.backs[CONTROLLER].send(
            node_frame(NodeApi.DELTA, encode_delta(Delta(version, full, False, list(records))))
        )
        self.pass_replies(CONTROLLER)

    def pass_replies(self, process: int) -> None:
        self.service.take_replies(process, self.fronts[process])

    def session_of(self, who: bytes = b"ada") -> int:
        return self.service.peers.seen(who, 0).session


@pytest.fixture
def world() -> Iterator[NetWorld]:
    world = NetWorld()
    yield world
    world.close()


# -- routing -------------------------------------------------------------------------------------------------


def test_a_request_goes_to_the_shard_of_its_partition_with_the_clients_session(world):
    world.ask(Api.PRODUCE, b"batch", partition=2, flags=Acks.ALL, received=0)
    ((header, body),) = world.requests(SHARD_1)
    assert (header.partition, header.received, body) == (2, world.session_of(), b"batch")
    assert world.requests(SHARD_0) == []


def test_what_a_client_writes_where_its_session_goes_counts_for_nothing(world):
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL, received=4711)
    ((header, _),) = world.requests(SHARD_0)
    assert header.received == world.session_of() != 4711


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


# -- room ----------------------------------------------------------------------------------------------------


def fill_ring(world: NetWorld, partition: int = 1, count: int = 100) -> None:
    for number in range(count):
        world.ask(Api.PRODUCE, bytes(8 * KIB), partition=partition, flags=Acks.ALL, correlation=number)


def test_requests_reach_a_full_shard_in_their_order_when_it_has_room(world):
    fill_ring(world)
    seen: list[int] = []
    while not world.service.retry_overflow() or len(seen) < 100:
        found = world.requests(SHARD_0)
        seen += [header.correlation for header, _ in found]
        world.ask(Api.PRODUCE, b"late", partition=1, flags=Acks.ALL, correlation=1000 + len(seen))
    seen += [header.correlation for header, _ in world.requests(SHARD_0)]
    assert seen[:100] == list(range(100))
    assert seen == sorted(seen)


def test_a_full_shard_does_not_stop_another(world):
    fill_ring(world)
    world.ask(Api.PRODUCE, b"batch", partition=2, flags=Acks.ALL, who=b"bob")
    assert len(world.requests(SHARD_1)) == 1


def test_past_its_bound_a_full_shard_refuses_retriably_and_owes_nothing(world, monkeypatch):
    monkeypatch.setattr(service_module, "OVERFLOW_BYTES_MAX", 64 * KIB)
    fill_ring(world)
    refused = world.take_sent()
    assert {(sent.error.code, sent.error.retriable) for sent in refused} == {(Overloaded.code, True)}
    assert world.service.peers.pending_count == 100 - len(refused)


def test_a_ring_that_its_reader_closed_leaves_no_request_pending(world):
    world.backs[SHARD_0].reader._native.close()
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    (sent,) = world.take_sent()
    assert sent.error.retriable
    assert (world.service.peers.pending_count, world.service.peers.in_flight_bytes) == (0, 0)


# -- credit --------------------------------------------------------------------------------------------------


def owe(world: NetWorld, nbytes: int) -> None:
    world.service.peers.seen(b"ada", 0).sent_bytes = nbytes


def test_fetches_are_held_while_too_much_was_not_received(world):
    owe(world, CLIENT_REPLY_BYTES_MAX + 1)
    world.ask(Api.FETCH, b"f", partition=1)
    assert world.requests(SHARD_0) == []
    world.ask(Api.METADATA, MetadataRequest([]), correlation=2, received=CLIENT_REPLY_BYTES_MAX)
    assert [header.correlation for header, _ in world.requests(SHARD_0)] == [1]


def test_what_is_no_fetch_is_not_held(world):
    owe(world, CLIENT_REPLY_BYTES_MAX + 1)
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    assert len(world.requests(SHARD_0)) == 1


def test_fetches_beyond_those_that_can_be_held_are_refused_retriably(world):
    owe(world, CLIENT_REPLY_BYTES_MAX + 1)
    for number in range(HELD_FETCHES_MAX + 1):
        world.ask(Api.FETCH, b"f", partition=1, correlation=number)
    (sent,) = world.take_sent()
    assert (sent.header.correlation, sent.error.code) == (HELD_FETCHES_MAX, Overloaded.code)


def test_a_held_fetch_of_a_client_that_left_is_dropped(world):
    owe(world, CLIENT_REPLY_BYTES_MAX + 1)
    world.ask(Api.FETCH, b"f", partition=1)
    world.unreachable.add(b"ada")
    world.ask(99, correlation=2, received=CLIENT_REPLY_BYTES_MAX)
    assert world.requests(SHARD_0) == []
    assert (world.service.peers.pending_count, world.service.peers.in_flight_bytes) == (0, 0)


def test_a_client_that_reads_nothing_is_not_listened_to(world):
    owe(world, 2 * CLIENT_REPLY_BYTES_MAX + 1)
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    world.ask(99)
    world.service.take(b"ada", memoryview(b"rubbish"))
    assert (world.requests(SHARD_0), world.take_sent()) == ([], [])


def test_a_client_that_reads_nothing_is_sent_no_more_data(world):
    for correlation in range(3):
        world.ask(Api.FETCH, b"f", partition=1, correlation=correlation)
    owe(world, 2 * CLIENT_REPLY_BYTES_MAX + 1)
    world.answer(SHARD_0, world.session_of(), 1, bytes(8 * KIB), api=Api.FETCH)
    world.pass_replies(SHARD_0)
    (sent,) = world.take_sent()
    assert (sent.error.code, sent.error.retriable) == (Overloaded.code, True)


def test_a_client_that_reads_again_is_heard_again(world):
    owe(world, 2 * CLIENT_REPLY_BYTES_MAX + 1)
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL, received=2 * CLIENT_REPLY_BYTES_MAX)
    assert len(world.requests(SHARD_0)) == 1


# -- lent replies --------------------------------------------------------------------------------------------


def lend(world: NetWorld, correlation: int = 1) -> None:
    body = pack_lent(77, b"head", [(0, 4), (256, 2)])
    world.answer(SHARD_0, world.session_of(), correlation, body, api=Api.FETCH, flags=LENT)


def test_a_lent_reply_is_copied_and_given_back_at_once(world):
    world.ask(Api.FETCH, b"f", partition=1)
    world.requests(SHARD_0)
    lend(world)
    world.pass_replies(SHARD_0)
    (sent,) = world.take_sent()
    assert sent.body == b"head" + bytes([0, 1, 2, 3]) + bytes([0, 1])
    assert not sent.header.flags & LENT
    ((header, body),) = world.requests(SHARD_0)
    assert (header.api_key, unpack_u64(memoryview(body))) == (NodeApi.RELEASE, (77,))


def test_a_lent_reply_for_a_client_that_left_is_given_back_too(world):
    world.ask(Api.FETCH, b"f", partition=1)
    world.requests(SHARD_0)
    lend(world)
    world.service.peers.drop(world.service.peers.seen(b"ada", 0))
    world.pass_replies(SHARD_0)
    assert [header.api_key for header, _ in world.requests(SHARD_0)] == [NodeApi.RELEASE]


# -- deaths --------------------------------------------------------------------------------------------------


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


def test_a_dead_controller_refuses_what_it_was_asked(world):
    world.ask(Api.CREATE_TOPIC, CreateTopicRequest("new"))
    world.connect(CONTROLLER)
    (sent,) = world.take_sent()
    assert (sent.error.code, sent.error.retriable) == ("CONTROLLER_UNAVAILABLE", True)


# -- metadata ------------------------------------------------------------------------------------------------


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
    world.service._facts.auto_create = False
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
