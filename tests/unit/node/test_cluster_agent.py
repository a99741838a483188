"""The controller process of a node in a cluster: what its processes are told, when, and what becomes of requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from ringlog.config import NodeConfig
from ringlog.consensus.messages import Snapshot, Voter
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Identity, decode_delta
from ringlog.net.cluster_messages import AlterIsrReply, AlterIsrRequest, IsrChange
from ringlog.net.framing import HEADER_BYTES, Api, Flag
from ringlog.net.group_messages import OFFSETS_TOPIC
from ringlog.net.messages import (
    CreateTopicRequest,
    ErrorReply,
    InitProducerReply,
    InitProducerRequest,
    TopicReply,
    decode_body,
    encode_body,
)
from ringlog.node.cluster_controller import ClusterController
from ringlog.node.cluster_parts import NodeLife, cluster_agent
from ringlog.node.quorum_store import QuorumStore
from ringlog.ring.board import ProcessState, Topology
from ringlog.ring.frame import frame_header
from ringlog.shard.commands import NodeApi, node_frame, pack_u64
from tests.support.joined import JoinedProcesses
from tests.support.node import free_port, wait_for
from tests.support.patience import stretched

TOPOLOGY = Topology(nets=1, shards=1)
CONTROLLER, NET, SHARD = 0, 1, 2
NODE = 7


class World:
    """The only node of a cluster; this test is its network process and its shard."""

    def __init__(
        self, data_dir: Path, *, incarnation: str = "life-1", others: str = "", **topic_defaults: str
    ) -> None:
        self.config = NodeConfig(
            data_dir=str(data_dir),
            node_id=NODE,
            cluster=f"{NODE}@127.0.0.1:{free_port()}{others}",
            shards=1,
            topic_defaults=topic_defaults,
        )
        self.joined = JoinedProcesses(TOPOLOGY)
        self.board = self.joined.board
        self.links = [self.joined.links(process) for process in range(3)]
        for links in self.links[1:]:
            links.refresh()
        self.net, self.shard = self.links[NET].ends[CONTROLLER], self.links[SHARD].ends[CONTROLLER]
        self.image = MetadataImage()
        self.serves = False
        """The shard applies what it is told, and says so."""
        self.replies: dict[int, tuple[int, bytes]] = {}
        self.correlation = 0
        self.begin(incarnation)

    def begin(self, incarnation: str) -> None:
        """A controller process begins."""
        self.board.set_state(CONTROLLER, ProcessState.STARTING)
        self.agent = cluster_agent(
            CONTROLLER,
            self.config,
            NodeLife(incarnation, clean_stop=True),
            [["tcp://127.0.0.1:9400"]],
            self.board,
            self.links[CONTROLLER],
            self.joined.stats(CONTROLLER),
            lambda: False,
        )

    def close(self) -> None:
        self.agent._controller.close()
        self.joined.close()

    def run(self, until) -> None:
        """Let it work until something is true."""

        def passed() -> bool:
            self.agent.cycle()
            self._follow()
            return bool(until())

        wait_for("what the controller does", passed, stretched(20), every_s=0)

    def _follow(self) -> None:
        for message in self.net.reader.read_all():
            frame = bytes(message.body)
            if frame[1] != NodeApi.DELTA:
                flags = int.from_bytes(frame[2:4], "little")
                self.replies[int.from_bytes(frame[8:16], "little")] = flags, frame[HEADER_BYTES:]
        self.net.reader.release()
        for message in self.shard.reader.read_all():
            frame = bytes(message.body)
            if frame[1] == NodeApi.DELTA:
                self.image.apply(decode_delta(frame[HEADER_BYTES:]))
            else:
                self.replies[-frame[1]] = 0, frame[HEADER_BYTES:]
        self.shard.reader.release()
        if self.serves and self.image.version:
            self.board.set_state(SHARD, ProcessState.READY)
            self.shard.send(node_frame(NodeApi.APPLIED, pack_u64(self.image.version)))

    def ask(self, api: Api, body: msgspec.Struct, *, session: int = 9) -> int:
        self.correlation += 1
        data = encode_body(body)
        header = frame_header(
            api_key=api, partition=0, correlation=self.correlation, session=session, body_bytes=len(data)
        )
        self.net.send(header + data)
        return self.correlation

    def answer(self, number: int, kind: type[msgspec.Struct]) -> msgspec.Struct:
        self.run(lambda: number in self.replies)
        flags, body = self.replies[number]
        return decode_body(body, ErrorReply if flags & Flag.ERROR else kind)

    @property
    def is_ready(self) -> bool:
        return self.board.state(CONTROLLER) is ProcessState.READY


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def ready(world: World) -> World:
    world.serves = True
    world.run(lambda: world.is_ready and world.image.brokers and not world.image.brokers[NODE].fenced)
    return world


def test_a_node_without_a_majority_says_whom_it_waits_for_and_who_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """As one whose data directory is right, and whose --cluster names the addresses of another cluster."""
    monkeypatch.setattr("ringlog.node.cluster_agent.SAY_WAITING_MS", 100.0)
    with zmq.Context() as context, context.socket(zmq.PULL) as stranger:
        reached, away = stranger.bind_to_random_port("tcp://127.0.0.1"), free_port()
        world = World(tmp_path, others=f",8@127.0.0.1:{reached},9@127.0.0.1:{away}")
        world.run(lambda: "Reached, and silent to this node: node 8 (tcp" in caplog.text)
        assert f"Not reached: node 9 (tcp://127.0.0.1:{away})" in caplog.text
        assert world.joined.stats_page.rows[CONTROLLER]["no_controller_ms"] >= 100
        world.close()


@pytest.mark.parametrize("defaults", [{}, {"flush": "os"}], ids=["by default", "by its configuration"])
def test_a_node_registers_with_when_it_flushes(tmp_path: Path, defaults: dict[str, str]):
    world = World(tmp_path, **defaults)
    assert world.agent._session._registration.flush == defaults.get("flush", "ack")
    world.close()


def test_processes_are_told_of_this_life_first_and_as_of_this_node(world: World):
    world.run(lambda: world.image.version > 0)
    assert world.image.node_id == NODE and world.image.cluster_id
    broker = world.image.brokers[NODE]
    assert (broker.incarnation, broker.endpoints, broker.fenced) == (
        "life-1",
        ("tcp://127.0.0.1:9400",),
        True,
    )
    assert broker.peer_endpoint == world.config.peer_listen
    assert world.image.controller_id == NODE


def test_the_node_is_ready_when_its_shards_serve_what_is_committed(world: World):
    world.run(lambda: world.image.version > 0)
    for _ in range(50):
        world.agent.cycle()
    assert not world.is_ready, "no shard has applied anything"
    ready(world)
    assert not world.image.brokers[NODE].fenced


def test_a_next_life_tells_nothing_of_the_one_before(tmp_path: Path):
    first = ready(World(tmp_path))
    assert isinstance(
        first.answer(first.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 2)), TopicReply), TopicReply
    )
    before = first.image
    first.close()
    second = World(tmp_path, incarnation="life-2")
    second.run(lambda: second.image.version > 0)
    broker = second.image.brokers[NODE]
    assert broker.incarnation == "life-2" and broker.broker_epoch > before.brokers[NODE].broker_epoch
    for partition in second.image.partitions.values():
        old = before.partitions[partition.partition]
        assert partition.leader_epoch > old.leader_epoch, "nobody leads in the epoch of a former life"
    second.close()


def test_a_new_controller_process_of_the_same_life_begins_with_all_that_was_told_before(world: World):
    ready(world)
    world.answer(world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1)), TopicReply)
    version, epoch = world.image.version, world.image.brokers[NODE].broker_epoch
    world.agent._controller.close()
    world.image = MetadataImage()
    world.joined.replace(CONTROLLER)
    for links in world.links:
        for change in links.refresh():
            if change.old is not None:
                change.old.close()
    world.net, world.shard = world.links[NET].ends[CONTROLLER], world.links[SHARD].ends[CONTROLLER]
    world.begin("life-1")
    world.run(lambda: world.image.version > 0)
    assert world.image.version >= version and "t" in world.image.topics
    assert world.image.brokers[NODE].broker_epoch == epoch, "it is the same life"
    ready(world)


def test_a_newcomer_that_gets_a_snapshot_belongs_to_its_cluster_from_then_on(tmp_path: Path):
    voters = (Voter(1, ""),)
    store = QuorumStore(str(tmp_path), 1, voters)
    controller = ClusterController(store, {1: f"tcp://127.0.0.1:{free_port()}"}, now_ms=lambda: 0.0)
    controller.restore(Snapshot(5, 1, voters, msgspec.msgpack.encode([Identity("c1u57e7", 2)])))
    assert store.cluster_id == ""
    controller.run(0.0)
    assert store.cluster_id == "c1u57e7"
    controller.close()


def test_a_topic_is_answered_when_the_shards_serve_it(world: World):
    ready(world)
    world.serves = False
    number = world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 2))
    world.run(lambda: "t" in world.image.topics)
    for _ in range(20):
        world.agent.cycle()
        world._follow()
    assert number not in world.replies
    world.serves = True
    reply = world.answer(number, TopicReply)
    assert isinstance(reply, TopicReply)
    assert [place.leader_node for place in reply.topic.partitions] == [NODE, NODE]
    assert [place.replicas for place in reply.topic.partitions] == [[NODE], [NODE]]


def test_a_request_waits_for_a_controller_and_for_nodes(world: World):
    """Asked before anybody leads, and before this node is ready: done as soon as that is so."""
    number = world.ask(Api.CREATE_TOPIC, CreateTopicRequest("early", 1, 1))
    ready(world)
    reply = world.answer(number, TopicReply)
    assert isinstance(reply, TopicReply) and reply.topic.name == "early"


def test_what_cannot_be_done_is_refused_at_once(world: World):
    ready(world)
    refused = world.answer(world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1, 2)), TopicReply)
    assert isinstance(refused, ErrorReply) and "this cluster has 1 nodes" in refused.message
    internal = world.answer(world.ask(Api.CREATE_TOPIC, CreateTopicRequest(OFFSETS_TOPIC)), TopicReply)
    assert isinstance(internal, ErrorReply) and internal.code == "INVALID_REQUEST"


def test_a_network_process_gets_the_topic_of_groups_made(world: World):
    ready(world)
    number = world.ask(Api.CREATE_TOPIC, CreateTopicRequest(OFFSETS_TOPIC), session=0)
    reply = world.answer(number, TopicReply)
    assert isinstance(reply, TopicReply) and len(reply.topic.partitions) == 50


def test_producer_ids_are_given(world: World):
    ready(world)
    ids = [
        world.answer(world.ask(Api.INIT_PRODUCER, InitProducerRequest()), InitProducerReply) for _ in range(3)
    ]
    assert len({reply.producer_id for reply in ids if isinstance(reply, InitProducerReply)}) == 3


def test_a_proposal_of_a_shard_is_answered_to_the_shard(world: World):
    ready(world)
    world.answer(world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1)), TopicReply)
    (partition,) = world.image.partitions.values()
    epoch = world.image.brokers[NODE].broker_epoch
    stale = IsrChange(partition.partition, partition.leader_epoch, 99, [(NODE, epoch)])
    body = encode_body(AlterIsrRequest(NODE, epoch, [stale]))
    header = frame_header(api_key=NodeApi.ALTER_ISR, partition=0, correlation=0, body_bytes=len(body))
    world.shard.send(header + body)
    reply = world.answer(-NodeApi.ALTER_ISR, AlterIsrReply)
    assert isinstance(reply, AlterIsrReply) and reply.partitions[0].error != 0


def test_a_node_that_is_to_stop_says_when_it_may(world: World):
    ready(world)
    world.board.start_stopping()
    world.run(lambda: world.board.state(CONTROLLER) is ProcessState.LEFT)
    world.run(lambda: world.image.brokers[NODE].leaving)
