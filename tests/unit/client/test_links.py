"""Whom a client asks for what any node can answer, when nodes fall silent. Time and sockets are the test's."""

from __future__ import annotations

from ringlog import limits
from ringlog.client.cluster_view import ClusterView
from ringlog.client.links import Links
from ringlog.errors import NotLeader, RinglogError
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
        """Nodes that answer nothing."""
        self.cut_off: set[int] = set(NODES)
        """Nodes that do not answer for records: they wait for others."""
        self.slow_s = 0.0
        """How long the making of a topic takes."""
        self.made: list[int] = []
        """Who was asked to make a topic."""
        self.answered = 0
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

    def make_topic(self) -> None:
        def on_reply(*_: object) -> None:
            self.answered += 1

        self._take(Request(Api.CREATE_TOPIC, b"a topic", on_reply, lambda error: self.make_topic()))

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
        self.is_up = self.is_taken = False
        self.frames: list[memoryview] = []
        self.owed: list[tuple[float, int]] = []
        """When what is answered: the time, and the correlation."""
        self.held: list[int] = []
        """Correlations of records that are not answered for."""

    def changes(self) -> list[Change]:
        if self.is_up:
            return []
        self.is_up = self.node not in self.world.down
        return [Change.UP if self.is_up else Change.REFUSED]

    def send(self, frame: bytes) -> bool:
        header = unpack_header(memoryview(frame))
        if header.api_key == Api.METADATA and bytes(frame[HEADER_BYTES:]) == b"who leads?":
            self.world.metadata_of.append(self.node)
        if header.api_key == Api.PRODUCE:
            self.held.append(header.correlation)
        elif header.api_key == Api.CREATE_TOPIC:
            self.world.made.append(self.node)
            self.owed.append((self.world.now_s + self.world.slow_s, header.correlation))
        elif self.node not in self.world.silent:
            self.owed.append((self.world.now_s, header.correlation))
        return True

    def _answer_due(self) -> None:
        world = self.world
        if self.node not in world.cut_off and self.node not in world.silent:
            self.owed += [(world.now_s, correlation) for correlation in self.held]
            self.held.clear()
        self.frames += [memoryview(self._answer(number)) for at_s, number in self.owed if at_s <= world.now_s]
        self.owed = [one for one in self.owed if one[0] > world.now_s]

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
        self._answer_due()
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


def came_back() -> World:
    """All nodes owe an answer, and only node 1 can be reached anew: the client came back to it."""
    world = World()
    world.pass_time(0.1)
    for node in NODES:
        world.produce(node)
    world.pass_time(0.1)
    world.silent = {2, 3}
    world.down = {2, 3}
    world.pass_time(8.0)
    old = world.links._by_node.get(1)
    assert world.links.home.node == 1 and old is not None and old is not world.links.home and old.suspected
    return world


def test_a_node_that_is_cut_off_is_left_also_by_who_came_back_to_it_on_another_connection():
    """It answers there, and what it tells is old: whoever believes it sends to it until every request is too late."""
    world = came_back()
    world.silent, world.down, world.cut_off = set(), set(), {1}
    world.metadata_of.clear()
    world.pass_time(10.0)
    assert {2, 3} & set(world.metadata_of), "others are asked as soon as they are there"
    assert world.links.home.node in (2, 3)
    assert [link.node for link in world.links._all].count(1) == 1, "the second connection is closed"


def test_an_answer_that_takes_its_time_is_waited_for_on_the_connection_that_it_was_asked_on():
    """Also when that is left meanwhile, because its node owes another answer."""
    world = came_back()
    world.slow_s = 1.5
    world.make_topic()
    world.pass_time(3.0)
    assert (world.answered, world.made) == (1, [1])


def test_who_can_reach_one_node_alone_does_not_connect_to_it_again_and_again():
    world = came_back()
    made = []
    dealer = world.dealer
    world.dealer = lambda endpoint: made.append(endpoint) or dealer(endpoint)  # type: ignore[method-assign]
    world.pass_time(10.0)
    assert len(made) <= 3


def test_a_request_for_a_node_that_is_known_to_lead_no_longer_is_not_sent_there():
    """Whoever made it has not heard of the move yet. Were the old leader silent, nobody would ever answer."""
    world = World()
    world.pass_time(0.1)
    world.produce(1)
    world.pass_time(0.1)
    world.view.routes[7] = 2
    failed: list[RinglogError] = []
    late = Request(Api.PRODUCE, b"a record", on_error=failed.append, partition=7, node=1)
    late.deadline_s = world.now_s + late.timeout_s
    world.links.take(late, world.now_s)
    assert world.links.flush(world.now_s), "the next step tells its owner"
    world.pass_time(0.05)
    assert [type(error) for error in failed] == [NotLeader]
    assert all(late not in link._session.pending.values() for link in world.links._all)


def test_of_a_node_that_answers_and_is_not_the_right_one_the_log_says_so(caplog):
    world = World()
    world.view.cluster_id = "another"
    world.make_topic()
    world.pass_time(4.0)
    [told] = [one for one in caplog.records if one.levelname == "WARNING"]
    assert "belongs to cluster c, not another. Make a new client" in told.getMessage()
