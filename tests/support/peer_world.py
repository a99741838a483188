"""One peer process without its sockets: a PeerService with real rings, and a test at their other ends."""

from __future__ import annotations

import os
from typing import NamedTuple

from ringlog.controller.records import Broker, BrokerRemoved, Delta, Identity, MetadataRecord, encode_delta
from ringlog.errors import InvalidRequest
from ringlog.limits import KIB
from ringlog.net.framing import HEADER_BYTES, Flag, Header, unpack_header
from ringlog.net.messages import ErrorReply, decode_body
from ringlog.net.peer_near import KEY_BYTES, MEMORY_BYTES, Landing, Offer
from ringlog.net.peer_service import PeerService
from ringlog.net.peer_wire import Me, hello_frame
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.frame import frame_header
from ringlog.ring.link import LinkEnd, create_link
from ringlog.ring.stats import Stats, StatsPage
from ringlog.shard.commands import NodeApi, node_frame, place, place_of

CONTROLLER, SHARD_0, SHARD_1 = 0, 2, 3
ME, OTHER, THIRD = 1, 2, 3
CLUSTER = "c"
RING = 64 * KIB
HOST = "here"
FETCH, HELD, HELLO = NodeApi.REPLICA_FETCH, NodeApi.REPLICA_HELD, NodeApi.PEER_HELLO


class Frame(NamedTuple):
    """A frame, taken apart. In a ring its session names a node and a shard; between nodes, a shard."""

    api: int
    flags: int
    correlation: int
    session: int
    body: bytes

    @property
    def place(self) -> tuple[int, int]:
        return place_of(self.session)

    @property
    def error(self) -> ErrorReply | None:
        return decode_body(self.body, ErrorReply) if self.flags & Flag.ERROR else None


def taken_apart(data: bytes | bytearray | memoryview) -> Frame:
    header: Header = unpack_header(bytes(data))
    return Frame(
        header.api_key, header.flags, header.correlation, header.received, bytes(data[HEADER_BYTES:])
    )


def frame(api: int, body: bytes = b"", *, correlation: int = 0, session: int = 0, flags: int = 0) -> bytes:
    header = frame_header(
        api_key=api,
        partition=9,
        correlation=correlation,
        session=session,
        flags=flags,
        body_bytes=len(body),
    )
    return header + body


class PeerWorld:
    """Node 1 of three, with two shards. Node 2 may have called, and may be called."""

    def __init__(self, region_bytes: int = 4096) -> None:
        self.called: list[tuple[int, Frame]] = []
        self.answered: list[tuple[bytes, Frame]] = []
        self.unreachable: set[int] = set()
        self.deaf: set[bytes] = set()
        """Connections that take nothing more."""
        self.dead: set[int] = set()
        self.memories: dict[tuple[int, int], bytearray] = {}
        """What processes of this host share, by the process and its descriptor."""
        self.stats = Stats(StatsPage(memoryview(bytearray(StatsPage.bytes_needed(1))), 1), 0)
        self.service = PeerService(
            self.stats,
            controller=CONTROLLER,
            shard_of=lambda process: process - SHARD_0,
            send=self._send,
            answer=self._answer,
            intact=lambda process: process not in self.dead,
            host=HOST,
            share=self._share,
            map_memory=self.map_memory,
        )
        self.bell = Doorbell.create()
        self.fronts: dict[int, LinkEnd] = {}
        self.backs: dict[int, LinkEnd] = {}
        self.region = bytearray(range(256)) * (region_bytes // 256)
        self.epochs = {ME: 10, OTHER: 20, THIRD: 30}
        self._generation = 0
        self._version = 0
        self._open: list[LinkEnd] = []
        self.now_ms = 1_000
        self.at(0)
        for process in (CONTROLLER, SHARD_0, SHARD_1):
            self.connect(process)

    def _send(self, node: int, message: bytes | bytearray) -> bool:
        if node in self.unreachable:
            return False
        self.called.append((node, taken_apart(message)))
        return True

    def _answer(self, routing_id: bytes, message: bytes | bytearray) -> bool:
        if routing_id in self.deaf:
            return False
        self.answered.append((routing_id, taken_apart(message)))
        return True

    def _share(self) -> Landing:
        return self.landing(os.getpid())

    def landing(self, process: int, host: str = HOST) -> Landing:
        """New memory of a process."""
        number = len(self.memories)
        memory = self.memories[process, number] = bytearray(MEMORY_BYTES)
        return Landing(memoryview(memory), Offer(host, process, number, self.key_of(number)))

    @staticmethod
    def key_of(number: int) -> bytes:
        return bytes([number + 1]) * KEY_BYTES

    def map_memory(self, process: int, descriptor: int, nbytes: int) -> memoryview:
        if (process, descriptor) not in self.memories:
            raise InvalidRequest("there is no such memory")
        return memoryview(self.memories[process, descriptor])[:nbytes]

    def at(self, after_ms: int) -> None:
        self.now_ms += after_ms
        self.service.at(self.now_ms * 1000)

    # -- this node -----------------------------------------------------------------------------------------------

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

    def delta(self, *records: MetadataRecord, full: bool = False) -> None:
        self._version += 1
        delta = Delta(self._version, full, False, list(records))
        self.backs[CONTROLLER].send(node_frame(NodeApi.DELTA, encode_delta(delta)))
        self._take_frames(CONTROLLER)

    def broker(self, node: int, epoch: int | None = None, endpoint: str | None = None) -> Broker:
        self.epochs[node] = self.epochs[node] if epoch is None else epoch
        where = f"tcp://node-{node}:1" if endpoint is None else endpoint
        return Broker(node, self.epochs[node], f"{node}", "d", (), where)

    def register(self) -> None:
        """All three are known."""
        self.delta(Identity(CLUSTER, ME), *(self.broker(node) for node in (ME, OTHER, THIRD)), full=True)

    def removed(self, node: int) -> None:
        self.delta(BrokerRemoved(node))

    def shard_sends(self, shard: int, data: bytes) -> None:
        """A shard writes a frame to its reply ring, and it is taken."""
        process = SHARD_0 + shard
        self.backs[process].send(data)
        self._take_frames(process)

    def _take_frames(self, process: int) -> None:
        front = self.fronts[process]
        self.service.take_frames(process, front, front.reader.read_all())

    def ask(self, node: int = OTHER, *, api: int = FETCH, shard: int = 0, their_shard: int = 1) -> None:
        """A shard of this node asks one of another."""
        self.shard_sends(shard, frame(api, b"want", correlation=their_shard, session=place(node)))

    def received(self, shard: int = 0) -> list[Frame]:
        """What a shard finds in its request ring."""
        reader = self.backs[SHARD_0 + shard].reader
        found = [taken_apart(message.body) for message in reader.read_all()]
        reader.release()
        return found

    # -- the other nodes -----------------------------------------------------------------------------------------

    def take_called(self) -> list[tuple[int, Frame]]:
        called, self.called = self.called, []
        return called

    def take_answered(self) -> list[tuple[bytes, Frame]]:
        answered, self.answered = self.answered, []
        return answered

    def welcome(self, node: int = OTHER, *, cluster: str = CLUSTER, claims: int | None = None) -> None:
        """A call is connected, and the other node lets us in."""
        self.service.connected(node)
        self.service.greet()
        self.take_called()
        them = Me(cluster, claims or node, self.epochs[claims or node])
        self.service.take_answer(node, memoryview(hello_frame(them, ME, Flag.REPLY)))

    def answer(self, data: bytes, node: int = OTHER) -> None:
        """The other node answers through our call."""
        self.service.take_answer(node, memoryview(data))

    def hello(
        self,
        node: int = OTHER,
        *,
        epoch: int | None = None,
        cluster: str = CLUSTER,
        to: int = ME,
        who: bytes = b"two",
    ) -> Frame | None:
        """Another node calls; what it is told."""
        them = Me(cluster, node, self.epochs[node] if epoch is None else epoch)
        self.call(hello_frame(them, to), who=who)
        answered = self.take_answered()
        return answered[-1][1] if answered else None

    def call(self, data: bytes, who: bytes = b"two") -> None:
        """Another node sends something through its call."""
        self.service.take_call(who, memoryview(data))


def fetch_of(their_shard: int = 0, *, shard: int = 0, body: bytes = b"want") -> bytes:
    """A fetch of a shard of another node, as it comes through its call."""
    return frame(FETCH, body, correlation=shard, session=their_shard)
