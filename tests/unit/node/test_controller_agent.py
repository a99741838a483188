"""The controller's loop: flushed before it is told, served before it is answered, and nothing given twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ringlog.config import NodeConfig
from ringlog.controller.records import decode_delta
from ringlog.log.store import LogStore
from ringlog.net.framing import HEADER_BYTES, Api, Flag
from ringlog.net.messages import (
    CreateTopicRequest,
    DeleteTopicRequest,
    ErrorReply,
    InitProducerReply,
    TopicReply,
    decode_body,
    encode_body,
)
from ringlog.node.controller_agent import ControllerAgent
from ringlog.node.metadata_log import MetadataLog
from ringlog.ring.board import ProcessState, Topology
from ringlog.ring.frame import frame_header
from ringlog.shard.commands import NodeApi, node_frame, pack_u64
from tests.support.fake_disk import FakeDisk
from tests.support.joined import JoinedProcesses
from tests.support.logs import aligned_memory

TOPOLOGY = Topology(nets=1, shards=1)
CONTROLLER, NET, SHARD = 0, 1, 2


class World:
    """A controller over a fake disk; this test is the network process and the shard."""

    def __init__(self, disk: FakeDisk) -> None:
        self.disk = disk
        disk.make_dir("/data")
        self.joined = JoinedProcesses(TOPOLOGY)
        self.board, self.bells = self.joined.board, self.joined.bells
        self.links = [self.joined.links(process) for process in range(3)]
        for links in self.links[1:]:
            links.refresh()
        self.net, self.shard = self.links[NET].ends[CONTROLLER], self.links[SHARD].ends[CONTROLLER]
        self.store = LogStore(disk, "/data", memory=aligned_memory(64 << 20))
        stats = self.joined.stats(CONTROLLER)
        log = MetadataLog(self.store, now_ms=0)
        config = NodeConfig(data_dir="/data")
        self.agent = ControllerAgent(
            CONTROLLER, config, self.board, self.links[CONTROLLER], log, stats, lambda: False
        )
        self.agent._load()
        self.correlation = 0

    def close(self) -> None:
        self.joined.close()

    def run(self, passes: int = 10) -> None:
        self.bells[CONTROLLER].ring()
        for _ in range(passes):
            # Something under way keeps a pass from sleeping, as a doorbell would.
            self.net.send(node_frame(NodeApi.APPLIED, pack_u64(0)))
            self.agent.cycle()

    def ask(self, api: Api, body=None) -> int:
        self.correlation += 1
        data = encode_body(body) if body is not None else b"\x90"
        header = frame_header(
            api_key=api, partition=0, correlation=self.correlation, session=9, body_bytes=len(data)
        )
        self.net.send(header + data)
        return self.correlation

    def applied(self, version: int) -> None:
        """The shard serves a version."""
        self.board.set_state(SHARD, ProcessState.READY)
        self.shard.send(node_frame(NodeApi.APPLIED, pack_u64(version)))

    def replies(self) -> dict[int, bytes | ErrorReply]:
        found: dict[int, bytes | ErrorReply] = {}
        for message in self.net.reader.read_all():
            frame = bytes(message.body)
            if frame[1] == NodeApi.DELTA:
                continue
            body = frame[HEADER_BYTES:]
            is_error = int.from_bytes(frame[2:4], "little") & Flag.ERROR
            found[int.from_bytes(frame[8:16], "little")] = decode_body(body, ErrorReply) if is_error else body
        self.net.reader.release()
        return found

    def deltas(self):
        found = [decode_delta(bytes(m.body[HEADER_BYTES:])) for m in self.shard.reader.read_all()]
        self.shard.reader.release()
        return found


@pytest.fixture
def world() -> Iterator[World]:
    world = World(FakeDisk(seed=1))
    world.run()
    yield world
    world.close()


def test_whoever_joins_gets_the_whole_image(world):
    (delta,) = world.deltas()
    assert (delta.full, delta.version) == (True, 1)


def test_a_change_is_told_only_when_it_is_flushed(world):
    world.deltas()
    world.disk.hold_all()
    world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 2))
    world.run()
    assert (world.deltas(), world.replies()) == ([], {})
    world.disk.release_all()
    world.run()
    (delta,) = world.deltas()
    assert len(delta.records) == 3


def test_a_change_is_answered_when_the_shards_serve_it(world):
    world.applied(1)
    asked = world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 2))
    world.run()
    assert world.replies() == {}
    world.applied(world.deltas()[-1].version)
    world.run()
    reply = decode_body(world.replies()[asked], TopicReply)
    assert (reply.topic.name, len(reply.topic.partitions)) == ("t", 2)


def test_a_shard_that_is_being_started_is_not_waited_for(world):
    asked = world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1))
    world.run()
    assert asked in world.replies()


def test_two_commands_in_one_pass_are_judged_one_after_the_other(world):
    first = world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1))
    second = world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1))
    world.run()
    replies = world.replies()
    assert isinstance(replies[first], bytes)
    assert replies[second].code == "TOPIC_EXISTS"


def test_no_producer_id_is_given_before_its_block_is_flushed(world):
    world.disk.hold_all()
    world.ask(Api.INIT_PRODUCER)
    world.ask(Api.INIT_PRODUCER)
    world.run()
    assert world.replies() == {}
    world.disk.release_all()
    world.run()
    given = [decode_body(body, InitProducerReply).producer_id for body in world.replies().values()]
    assert sorted(given) == [0, 1]


def test_bytes_that_are_no_command_are_refused(world):
    asked = world.ask(Api.CREATE_TOPIC, ErrorReply("a", "b", True))
    other = world.ask(Api.FETCH)
    world.run()
    replies = world.replies()
    assert (replies[asked].code, replies[other].code) == ("CORRUPT_FRAME", "UNSUPPORTED_VERSION")


def test_a_setting_that_is_no_number_is_refused_and_the_controller_lives(world):
    bad = world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1, config={"segment.bytes": "--5"}))
    good = world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1))
    world.run()
    replies = world.replies()
    assert replies[bad].code == "INVALID_REQUEST"
    assert isinstance(replies[good], bytes)


def test_a_name_is_not_given_anew_before_all_shards_have_let_go_of_it(world):
    world.applied(1)
    world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1))
    world.run()
    world.applied(world.deltas()[-1].version)
    world.ask(Api.DELETE_TOPIC, DeleteTopicRequest("t"))
    world.run()
    world.replies()
    early = world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1))
    world.run()
    refused = world.replies()[early]
    assert (refused.code, refused.retriable) == ("PARTITION_BUSY", True)
    world.applied(world.deltas()[-1].version)
    world.run()
    late = world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1))
    world.run()
    world.applied(world.deltas()[-1].version)
    world.run()
    assert isinstance(world.replies()[late], bytes)


def test_a_topic_does_not_begin_with_what_an_old_one_of_its_name_left(world):
    world.disk.make_dir("/data/t-0")
    world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 1))
    world.run()
    assert "t-0" not in world.disk.list_dirs("/data")


def test_everything_is_there_after_a_restart(world):
    world.ask(Api.CREATE_TOPIC, CreateTopicRequest("t", 2))
    world.run()
    again = World(world.disk.after_death(seed=2))
    again.run()
    (delta,) = again.deltas()
    assert [record.name for record in delta.records if hasattr(record, "name")] == ["t"]
    again.close()
