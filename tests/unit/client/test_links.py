"""Whom a client asks for what any node can answer, when nodes fall silent. Time and sockets are the test's."""

from __future__ import annotations

from ringlog import limits
from ringlog.client.cluster_view import ClusterView
from ringlog.client.links import Links
from ringlog.net.dealer import Change
from ringlog.net.framing import HEADER_BYTES, Api, Flag, pack_header, unpack_header
from ringlog.net.messages import BrokerMetadata, MetadataReply, encode_body
from ringlog.net.session import Request

NODES = (1, 2, 3)


class World:
    """Three nodes, which answer at once what they answer, and the connections of one client."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.down: set[int] = set()
        """Nodes that cannot be reached by new connections."""
        self.silent: set[int] = set()
        """Nodes that answer nothing; others answer everything but PRODUCE, as one does that waits for others."""
        self.metadata_of: list[int] = []
        """Who was asked for metadata, beyond a greeting."""
        self.ready = {"there may be something"}
        self.view = ClusterView([self.endpoint(node) for node in NODES])
        self.links = Links(self, self.view, self.now_s, self.ask)  # type: ignore[arg-type]

    @staticmethod
    def endpoint(node: int) -> str:
        return f"tcp://node-{node}:9400"

    def dealer(self, endpoint: str) -> Wire:
        return Wire(self, endpoint)

    def ask(self) -> None:
        """What a client does when a node is silent."""
        self._take(Request(Api.METADATA, b"who leads?"))

    def produce(self, node: int) -> None:
        self._take(Request(Api.PRODUCE, b"a record", partition=node, node=node))

    def _take(self, request: Request) -> None:
        request.deadline_s = self.now_s + request.timeout_s
        self.links.take(request, self.now_s)

    def pass_time(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 0.01
            self.links.step(self.now_s)
            self.links.flush(self.now_s)
            self.links.next_s()


class Wire:
    """In place of a Dealer."""

    def __init__(self, world: World, endpoint: str) -> None:
        self.world = world
        self.endpoint = endpoint
        self.node = next(node for node in NODES if world.endpoint(node) == endpoint)
        self.is_up = False
        self.frames: list[memoryview] = []

    def changes(self) -> list[Change]:
        if self.is_up:
            return []
        self.is_up = self.node not in self.world.down
        return [Change.UP if self.is_up else Change.REFUSED]

    def send(self, frame: bytes) -> bool:
        header = unpack_header(memoryview(frame))
        if header.api_key == Api.METADATA and bytes(frame[HEADER_BYTES:]) == b"who leads?":
            self.world.metadata_of.append(self.node)
        if header.api_key != Api.PRODUCE and self.node not in self.world.silent:
            self.frames.append(memoryview(self._answer(header.correlation)))
        return True

    def _answer(self, correlation: int) -> bytes:
        world = self.world
        brokers = [BrokerMetadata(node, [world.endpoint(node)], "elsewhere") for node in NODES]
        body = encode_body(
            MetadataReply(
                "c", self.node, 1, [self.endpoint], "elsewhere", limits.FRAME_BYTES_MAX, [], {}, brokers
            )
        )
        return (
            pack_header(
                api_key=Api.METADATA,
                partition=0,
                correlation=correlation,
                body_bytes=len(body),
                flags=Flag.REPLY,
            )
            + body
        )

    @property
    def has_frames(self) -> bool:
        return bool(self.frames)

    def receive(self) -> memoryview | None:
        return self.frames.pop(0) if self.frames else None

    def close(self) -> None:
        self.frames.clear()


def test_a_node_that_owes_an_answer_is_not_asked_who_leads():
    world = World()
    world.pass_time(0.1)
    for node in NODES:
        world.produce(node)
    world.pass_time(0.1)
    home = world.links.home.node
    world.pass_time(2.0)
    assert world.metadata_of, "all are silent: somebody is asked"
    assert world.metadata_of[0] != home


def test_a_node_that_is_cut_off_is_left_also_by_who_came_back_to_it_on_another_connection():
    """It answers there, and what it tells is old: whoever believes it sends to it until every request is too late."""
    world = World()
    world.pass_time(0.1)
    for node in NODES:
        world.produce(node)
    world.pass_time(0.1)
    # All are silent, and only one can be reached anew: the client comes back to it.
    world.silent = {2, 3}
    world.down = {2, 3}
    world.pass_time(8.0)
    old = world.links._by_node.get(1)
    assert world.links.home.node == 1 and old is not None and old is not world.links.home and old.suspected
    world.silent, world.down = set(), set()
    world.metadata_of.clear()
    world.pass_time(12.0)
    assert {2, 3} & set(world.metadata_of), "others are asked as soon as they are there"
