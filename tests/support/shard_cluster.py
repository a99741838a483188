"""Three shards of three nodes without their processes: real cores, logs and replication, joined by a list of frames.

The controller is played by the test: it says who leads, and is asked for changes of the in-sync replicas.
"""

from __future__ import annotations

import random

import msgspec

from ringlog.controller.records import Broker, Identity, MetadataRecord, Partition, Topic
from ringlog.limits import MIB, REPLICA_LAG_MS_DEFAULT
from ringlog.net.cluster_messages import AlterIsrReply, AlterIsrRequest, IsrState
from ringlog.net.framing import Flag
from ringlog.net.messages import decode_body
from ringlog.records.decode import decode
from ringlog.ring.frame import FRAME_HEADER_BYTES
from ringlog.shard.commands import LENT, NodeApi, pack_u64, unpack_lent
from tests.support.fake_disk import FakeDisk
from tests.support.shard_world import FakeOutlet, Reply, ShardWorld

NODES = (1, 2, 3)
PARTITION = 1


class ShardCluster:
    """One partition on three nodes."""

    def __init__(
        self,
        *,
        min_insync: int = 2,
        topic: str = "events",
        memory_bytes: int = 64 * MIB,
        lag_ms_max: int = REPLICA_LAG_MS_DEFAULT,
        **config: str,
    ) -> None:
        self._lag_ms_max = lag_ms_max
        self._memory_bytes = memory_bytes
        self.disks = {node: FakeDisk(seed=node) for node in NODES}
        self.worlds: dict[int, ShardWorld] = {}
        self.peers: dict[int, FakeOutlet] = {}
        self.controllers: dict[int, FakeOutlet] = {}
        self.cut: set[int] = set()
        """Nodes that nobody hears, and that hear nobody."""
        self.fenced: set[int] = set()
        self.leaving: set[int] = set()
        self.epochs = dict.fromkeys(NODES, 0)
        self._incarnations = dict.fromkeys(NODES, 0)
        self.asked: list[AlterIsrRequest] = []
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.topic = Topic(1, topic, {"min.insync.replicas": str(min_insync), **settings})
        self.record = Partition(
            PARTITION, 1, 0, 0, 1, 1, replicas=NODES, shards=(0, 0, 0), leader=1, isr=NODES
        )
        for node in NODES:
            self.start(node)

    # -- nodes -------------------------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        """A node begins, or begins anew from its disk, under a new registration."""
        self.epochs[node] += 1
        self._incarnations[node] = 0
        self.restart_shard(node)

    def restart_shard(self, node: int) -> None:
        """A node's shard begins anew, under the registration that the node has."""
        self._incarnations[node] += 1
        self.disks[node].is_watching = True  # as a shard's does
        world = self.worlds[node] = ShardWorld(
            disk=self.disks[node],
            memory_bytes=self._memory_bytes,
            lag_ms_max=self._lag_ms_max,
            incarnation=self._incarnations[node],
        )
        self.peers[node], self.controllers[node] = FakeOutlet(), FakeOutlet()
        world.core.replication.peers = self.peers[node]
        world.core.replication.controller = self.controllers[node]
        world.delta(Identity("c", node), *self._brokers(), self.topic, self.record, full=True)
        while world.core.hosting.has_work:
            world.core.hosting.work(world.now_ms)
        for other in NODES:
            if other in self.worlds and other != node:
                self.worlds[other].delta(*self._brokers())
                if self._incarnations[node] > 1:
                    # Conversations with a shard that died are failed at once, by who carries them.
                    self.worlds[other].core.replication.connect(self.peers[other], self.worlds[other].now_ms)

    def lose_power(self, node: int) -> None:
        """What was not flushed is gone; the node is to be started again."""
        self.disks[node] = self.disks[node].crash(random.Random(node), survival=0.0)
        del self.worlds[node]

    def _brokers(self) -> list[MetadataRecord]:
        return [
            Broker(
                node,
                epoch,
                f"{node}.{epoch}",
                "d",
                (),
                "",
                fenced=node in self.fenced,
                leaving=node in self.leaving,
            )
            for node, epoch in self.epochs.items()
        ]

    # -- the controller ----------------------------------------------------------------------------------------

    def tell(self, *nodes: int, **changes: object) -> None:
        """The controller changes the partition; these nodes, or all, hear of it."""
        after = {"partition_epoch": self.record.partition_epoch + 1, **changes}
        self.record = msgspec.structs.replace(self.record, **after)
        self.hear(*nodes)

    def hear(self, *nodes: int) -> None:
        """Nodes, or all, hear how the partition stands, though nothing changed."""
        for node in nodes or tuple(self.worlds):
            self.worlds[node].delta(*self._brokers(), self.record)

    def fence(self, node: int) -> None:
        """A node fell silent: it leaves the in-sync replicas."""
        self.fenced.add(node)
        for world in self.worlds.values():
            world.delta(*self._brokers())
        self.tell(isr=tuple(member for member in self.record.isr if member != node))

    def elect(self, node: int, *told: int, isr: tuple[int, ...] | None = None, **facts: object) -> None:
        isr = isr if isr is not None else self.record.isr
        self.tell(*told, leader=node, leader_epoch=self.record.leader_epoch + 1, isr=isr, **facts)

    def answer_proposals(self, *, error: int = 0) -> list[tuple[int, ...]]:
        """Grant (or refuse) what leaders have proposed; what that was."""
        wishes = []
        for node, outlet in self.controllers.items():
            for frame in outlet.take():
                assert frame.api_key == NodeApi.ALTER_ISR
                (change,) = decode_body(frame.body, AlterIsrRequest).changes
                assert all(self.epochs[member] == epoch for member, epoch in change.isr)
                isr = tuple(member for member, _ in change.isr)
                wishes.append(isr)
                if error:
                    self.refuse(node, frame.correlation, error)
                elif change.partition_epoch == self.record.partition_epoch:
                    if change.renews:
                        self.relieve(node)
                    else:
                        self.tell(isr=isr)
        return wishes

    def relieve(self, node: int) -> None:
        """A node that may lack what it held is in sync no more, unless it is the last."""
        others = tuple(member for member in self.record.isr if member != node)
        if self.record.leader == node:
            self.elect(others[0] if others else node, isr=others or self.record.isr)
        else:
            self.elect(self.record.leader, isr=others)

    def refuse(self, node: int, number: int, error: int) -> None:
        """A leader is told that the proposal which it sent with a request was not taken; and how the partition is."""
        record = self.record
        state = IsrState(
            PARTITION, error, record.leader, record.leader_epoch, record.partition_epoch, [*record.isr]
        )
        self.worlds[node].core.replication.altered(number, AlterIsrReply([state]), self.worlds[node].now_ms)

    # -- time and frames ---------------------------------------------------------------------------------------

    def run(self, passes: int = 12, after_ms: int = 1) -> None:
        """Let everybody work, and carry their frames."""
        for _ in range(passes):
            for node, world in self.worlds.items():
                world.at(after_ms)
                world.settle(2)
                world.core.replication.work(world.now_ms)
                world.core.deletions.work()
                self._carry(node)

    def _carry(self, node: int) -> None:
        for frame in self.peers[node].take():
            other = frame.session
            if node in self.cut or other in self.cut or other not in self.worlds:
                continue
            world = self.worlds[other]
            # What arrives says where it came from: a peer's process knows that, whatever the frame claims.
            world.send(
                frame.api_key,
                frame.body,
                partition=frame.partition,
                session=node,
                flags=frame.flags,
                outlet=_Back(self, other, node, frame.correlation),  # type: ignore[arg-type]
            )

    def deliver(self, source: int, node: int, lane: int, reply: Reply) -> None:
        """An answer to a fetch of a node arrives there."""
        if source in self.cut or node in self.cut or node not in self.worlds or source not in self.worlds:
            return
        body = reply.body
        if reply.flags & LENT:
            lent = unpack_lent(memoryview(body))
            region = self.worlds[source].region
            body = lent.head + b"".join(bytes(region[at : at + n]) for at, n in lent.ranges)
            self.worlds[source].send(NodeApi.RELEASE, pack_u64(lent.token))
        world = self.worlds[node]
        world._correlation = lane - 1  # the answer comes back with the correlation of its fetch
        world.send(
            reply.api_key,
            body,
            partition=reply.partition,
            session=source,
            flags=reply.flags & ~LENT | Flag.REPLY,
        )

    # -- what there is -------------------------------------------------------------------------------------------

    def values(self, node: int) -> list[bytes]:
        """All records in a node's log, committed or not."""
        log = self.worlds[node].log(PARTITION)
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.held_offset:
            slices = self.worlds[node].store.read_tail(log.name, offset, 1 << 20, ahead=True)
            if slices is None:
                done: list = []
                self.worlds[node].store.read(
                    log.name, offset, 1 << 20, done=done.append, failed=done.append, ahead=True
                )
                self.worlds[node].settle()
                slices = done[0]
            with slices:
                found += [record.value for record in decode(slices.tobytes()) if record.value is not None]
                offset = slices.next_offset
        return found


class _Back(FakeOutlet):
    """The way back of one fetch."""

    def __init__(self, cluster: ShardCluster, source: int, node: int, lane: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._to = (source, node, lane)

    def send(self, frame: bytes) -> None:
        super().send(frame)
        (reply,) = self.take()
        assert len(frame) >= FRAME_HEADER_BYTES
        self._cluster.deliver(*self._to, reply)
