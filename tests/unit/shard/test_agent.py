"""The loop of a shard: ready when it serves what there is, awake when somebody asks, honest about its time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest

from ringlog.controller.records import Broker, Delta, Identity, Partition, Topic, TopicConfig, encode_delta
from ringlog.disk.choose import open_disk
from ringlog.log.store import LogStore
from ringlog.net.framing import Acks, Api
from ringlog.net.messages import FetchPartition, FetchRequest, encode_body
from ringlog.net.shared_memory import map_shared
from ringlog.ring.board import ProcessState, Topology
from ringlog.ring.frame import frame_header
from ringlog.ring.link import LinkEnd
from ringlog.shard.agent import ShardAgent
from ringlog.shard.commands import NodeApi, node_frame, unpack_u64
from ringlog.shard.hosting import WORK_SLICE_S
from ringlog.shard.near_batches import NearBatches
from tests.support.joined import JoinedProcesses
from tests.support.logs import aligned_memory, batch_of

TOPOLOGY = Topology(nets=1, shards=1)
CONTROLLER, NET, SHARD = 0, 1, 2


class World:
    """A shard's loop, turned by hand; this test is the controller and the network process."""

    def __init__(self, root: str, spin_us: int = 0) -> None:
        self.joined = JoinedProcesses(TOPOLOGY)
        self.board = self.joined.board
        self.controller_links, self.net_links = self.joined.links(CONTROLLER), self.joined.links(NET)
        self.controller_links.refresh()
        self.net_links.refresh()
        region = aligned_memory(64 << 20)
        store = LogStore(open_disk("plain"), root, memory=region)
        self.stats = self.joined.stats(SHARD)
        self.agent = ShardAgent(
            SHARD,
            self.board,
            self.joined.links(SHARD),
            store,
            region,
            NearBatches(map_shared, region[:0]),
            self.stats,
            lambda: False,
            spin_us=spin_us,
        )

    @property
    def net(self) -> LinkEnd:
        return self.net_links.ends[SHARD]

    @property
    def controller(self) -> LinkEnd:
        return self.controller_links.ends[SHARD]

    def cycle(self, passes: int = 5) -> None:
        for _ in range(passes):
            self.joined.bells[SHARD].ring()  # so that it does not sleep for long
            now_us = time.monotonic_ns() // 1000
            self.agent.cycle(now_us // 1000, now_us)

    def delta(self, *records, version: int, full: bool = True, more: bool = False) -> None:
        delta = Delta(version, full, more, list(records))
        self.controller.send(node_frame(NodeApi.DELTA, encode_delta(delta)))

    def applied(self) -> list[int]:
        found = [unpack_u64(m.body[32:])[0] for m in self.controller.reader.read_all()]
        self.controller.reader.release()
        return found

    def produce(self) -> None:
        batch = bytes(batch_of(b"value"))
        header = frame_header(
            api_key=Api.PRODUCE, partition=1, correlation=5, session=1, flags=Acks.ALL, body_bytes=len(batch)
        )
        self.net.send(header + batch)

    def fetch(self, wait_ms: int) -> None:
        """Read on at the end of the empty partition."""
        body = encode_body(FetchRequest(0, wait_ms, 1, 1 << 20, [FetchPartition(1, 0, 1 << 20)]))
        header = frame_header(api_key=Api.FETCH, partition=1, correlation=7, session=1, body_bytes=len(body))
        self.net.send(header + body)

    def replies(self) -> int:
        found = len(self.net.reader.read_all())
        self.net.reader.release()
        return found


TOPIC = (Identity("c", 1), Topic(1, "t", {}), Partition(1, 1, 0, 0))


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    world = World(str(tmp_path))
    yield world
    world.joined.close()


def test_a_shard_is_not_ready_before_it_knows_what_there_is(world):
    world.cycle()
    assert (world.board.state(SHARD), world.applied()) == (ProcessState.NONE, [])


def test_a_shard_is_not_ready_with_half_of_what_there_is(world):
    world.delta(*TOPIC, version=3, more=True)
    world.cycle()
    assert (world.board.state(SHARD), world.applied()) == (ProcessState.NONE, [])
    world.delta(version=3, full=False)
    world.cycle()
    assert (world.board.state(SHARD), world.applied()) == (ProcessState.READY, [3])


def test_a_shard_that_is_ready_takes_appends(world):
    world.delta(*TOPIC, version=3)
    world.cycle()
    world.produce()
    until = time.monotonic() + 5
    while not (answered := world.replies()):
        assert time.monotonic() < until
        world.cycle()
    assert answered == 1


def test_a_shard_that_stood_still_hears_who_leads_before_it_serves_what_came_meanwhile(world):
    brokers = [Broker(node, node, f"{node}", f"{node}", (), "", fenced=False) for node in (1, 2)]
    led = Partition(1, 1, 0, 0, 1, 1, (1, 2), (0, 0), leader=1, isr=(1, 2))
    world.delta(*TOPIC[:2], *brokers, led, version=3)
    world.cycle()
    log = world.agent.core.hosting.hosted[1].log
    world.produce()  # while it stands still, as the next line
    world.delta(msgspec.structs.replace(led, leader=2, leader_epoch=2, isr=(2,)), version=4, full=False)
    world.cycle(1)
    assert (world.replies(), log.next_offset) == (1, 0), "refused, and not appended"


def test_each_version_is_reported_once(world):
    world.delta(*TOPIC, version=3)
    world.cycle()
    world.delta(Topic(2, "u", {}), version=4, full=False)
    world.cycle()
    assert world.applied() == [3, 4]


def test_settings_are_reported_when_all_logs_have_them(world, monkeypatch):
    reconfigure = LogStore.reconfigure

    def slowly(*args, **kwargs):
        time.sleep(WORK_SLICE_S)
        reconfigure(*args, **kwargs)

    monkeypatch.setattr(LogStore, "reconfigure", slowly)
    world.delta(*TOPIC, Partition(2, 1, 1, 0), version=3)
    world.cycle()
    world.delta(TopicConfig(1, {"flush": "os"}), version=4, full=False)
    world.cycle(1)
    assert world.applied() == [3], "one log has the old settings"
    world.cycle(1)
    assert world.applied() == [4]


def test_a_new_controller_is_told_again(world):
    world.delta(*TOPIC, version=3)
    world.cycle()
    world.joined.replace(CONTROLLER)
    for change in (*world.controller_links.refresh(), *world.net_links.refresh()):
        change.old.close()
    world.delta(*TOPIC, version=3)
    world.cycle()
    assert world.applied()[-1] == 3


def test_a_new_network_process_is_served(world):
    world.delta(*TOPIC, version=3)
    world.cycle()
    world.joined.replace(NET)
    for change in (*world.net_links.refresh(), *world.controller_links.refresh()):
        change.old.close()
    world.produce()
    until = time.monotonic() + 5
    while not world.replies():
        assert time.monotonic() < until
        world.cycle()


def test_passes_work_and_free_memory_are_counted(world):
    world.cycle(7)
    counts = world.stats.counts
    assert counts["loops"] == 7
    assert counts["busy_us"] > 0
    assert counts["memory_free_bytes"] == 64 << 20


def test_a_shard_that_may_spin_looks_for_more_for_so_long_and_then_sleeps(tmp_path, monkeypatch):
    world = World(str(tmp_path), spin_us=60_000_000)
    world.delta(*TOPIC, version=3)
    world.cycle()
    sleeps = []
    links = world.agent._links
    monkeypatch.setattr(links, "announce_wait", lambda: sleeps.append(1) or True)
    world.produce()
    now_us = time.monotonic_ns() // 1000
    while not world.replies():
        world.agent.cycle(now_us // 1000, now_us)
    for _ in range(20):
        world.agent.cycle(now_us // 1000, now_us)
    assert not sleeps
    world.joined.bells[SHARD].ring()
    later_us = time.monotonic_ns() // 1000 + 61_000_000
    world.agent.cycle(later_us // 1000, later_us)
    assert sleeps
    world.joined.close()


def test_a_quiet_shard_wakes_up_for_a_flush_by_interval_and_only_for_that(world):
    world.delta(Identity("c", 1), Topic(1, "t", {"flush": "interval:20"}), Partition(1, 1, 0, 0), version=3)
    world.cycle()
    log = world.agent.core.hosting.hosted[1].log
    now_us = time.monotonic_ns() // 1000
    now_ms = now_us // 1000

    def cycle():
        world.joined.bells[SHARD].ring()
        world.agent.cycle(now_ms, now_us)

    world.produce()
    while log.written_offset == 0:
        cycle()
    assert log.flushed_offset == 0
    assert world.agent._patience_s(now_ms, room=True) <= 0.020
    assert world.agent._patience_s(now_ms + 15, room=True) <= 0.005
    now_ms += 20
    while log.flushed_offset == 0:
        cycle()
    now_ms += 20  # a last look, for what came during the flush
    cycle()
    assert world.agent._patience_s(now_ms, room=True) > 0.1


def test_a_quiet_shard_wakes_up_for_a_fetch_whose_time_is_up(world):
    world.delta(*TOPIC, version=3)
    world.cycle()
    now_us = time.monotonic_ns() // 1000
    now_ms = now_us // 1000
    world.fetch(wait_ms=40)
    world.joined.bells[SHARD].ring()
    world.agent.cycle(now_ms, now_us)
    assert world.replies() == 0
    assert world.agent._patience_s(now_ms + 10, room=True) <= 0.030
    world.joined.bells[SHARD].ring()
    world.agent.cycle(now_ms + 39, now_us)
    assert world.replies() == 0
    world.agent.cycle(now_ms + 40, now_us)
    assert world.replies() == 1


def test_a_shard_that_never_sleeps_ends_fetches_in_time(world):
    """Requests that keep coming must not keep it from looking at what is due."""
    world.delta(*TOPIC, version=3)
    world.cycle()
    links = world.agent._links
    links.announce_wait = lambda: False  # there is always something to read
    now_us = time.monotonic_ns() // 1000
    now_ms = now_us // 1000
    world.fetch(wait_ms=40)
    for passed_ms in range(40):
        world.agent.cycle(now_ms + passed_ms, now_us + 1000 * passed_ms)
    assert world.replies() == 0
    world.agent.cycle(now_ms + 40, now_us + 40_000)
    assert world.replies() == 1


def test_a_pass_that_only_carries_records_looks_at_nothing_else(world, monkeypatch):
    world.delta(*TOPIC, version=3)
    world.cycle()
    now_us = time.monotonic_ns() // 1000
    now_ms = now_us // 1000
    world.joined.bells[SHARD].ring()
    world.agent.cycle(now_ms, now_us)
    looks = []
    monkeypatch.setattr(world.agent.core.replication, "work", looks.append)
    for _ in range(3):
        world.produce()
        world.joined.bells[SHARD].ring()
        world.agent.cycle(now_ms, now_us)
    assert not looks
    world.delta(Topic(2, "u", {}), version=4, full=False)
    world.joined.bells[SHARD].ring()
    world.agent.cycle(now_ms, now_us)
    assert looks
