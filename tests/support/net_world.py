"""One network process without its socket: a NetService with real rings, and a test at their other ends."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ringlog.controller.records import Delta, Identity, Partition, Topic, encode_delta
from ringlog.limits import KIB
from ringlog.net.framing import HEADER_BYTES, Acks, Api, Flag, Header, pack_header, unpack_header
from ringlog.net.messages import (
    ErrorReply,
    ShareMemoryRequest,
    decode_body,
    encode_body,
)
from ringlog.net.metadata_desk import NodeFacts
from ringlog.net.near import SharedMemory
from ringlog.net.service import NetService
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.frame import frame_header
from ringlog.ring.link import LinkEnd, create_link
from ringlog.ring.stats import Stats, StatsPage
from ringlog.shard.commands import LENT, NodeApi, node_frame, pack_lent

CONTROLLER, NET, SHARD_0, SHARD_1 = 0, 1, 2, 3
PROCESSES = 4
RING = 64 * KIB
CLIENT_PROCESS = 4711


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
        self.near: dict[int, bytearray] = {}
        """Memory of clients, by their descriptors of it."""
        self.shared = 0
        page = StatsPage(memoryview(bytearray(StatsPage.bytes_needed(PROCESSES))), PROCESSES)
        self.stats = Stats(page, NET)
        self.facts = NodeFacts(["tcp://127.0.0.1:1"], "host", auto_create=True, topic_defaults={})
        self.service = NetService(
            self.facts,
            self.stats,
            controller=CONTROLLER,
            shard_process=lambda shard: SHARD_0 + shard,
            send=self._send,
            intact=lambda process: process not in self.dead,
            near=self._near,
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

    def _near(self, routing_id: bytes, offer: ShareMemoryRequest) -> SharedMemory:
        self.shared += 1
        landing = memoryview(self.near[offer.descriptor])[: offer.nbytes] if offer.writable else None
        return SharedMemory(self.shared, CLIENT_PROCESS, offer.descriptor, offer.nbytes, landing)

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
        """A client asks."""
        data = encode_body(body) if isinstance(body, msgspec.Struct) else body
        frame = pack_header(api, correlation=correlation, body_bytes=len(data), **header) + data
        self.service.take(who, memoryview(bytearray(frame)))

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
        front = self.fronts[process]
        self.service.take_frames(process, front, front.reader.read_all())

    def session_of(self, who: bytes = b"ada") -> int:
        return self.service.peers.seen(who, 0).session


def fill_ring(world: NetWorld, partition: int = 1, count: int = 100) -> None:
    """More requests than the ring of a shard holds."""
    for number in range(count):
        world.ask(Api.PRODUCE, bytes(8 * KIB), partition=partition, flags=Acks.ALL, correlation=number)


def lend(world: NetWorld, correlation: int = 1) -> None:
    """Answer with memory that is lent."""
    body = pack_lent(77, b"head", [(0, 4), (256, 2)])
    world.answer(SHARD_0, world.session_of(), correlation, body, api=Api.FETCH, flags=LENT)
