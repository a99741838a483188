"""Three shards of three nodes, joined by their real peer processes (in threads): real rings, sockets and logs.

The controller is played by the test, as in `shard_cluster.py`; disks are fake.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ringlog.controller.records import (
    Broker,
    Delta,
    Identity,
    MetadataRecord,
    encode_delta,
)
from ringlog.net.peer_agent import PeerAgent
from ringlog.net.peer_socket import PeerSockets
from ringlog.ring.board import Links, Topology
from ringlog.shard.commands import NodeApi, node_frame
from tests.support.joined import JoinedProcesses
from tests.support.node import free_port
from tests.support.patience import Patience, stretched
from tests.support.shard_cluster import NODES, ShardCluster

TOPOLOGY = Topology(nets=0, shards=1, peers=1)
CONTROLLER, SHARD, PEER = 0, TOPOLOGY.shard(0), TOPOLOGY.peer()


class PeerThread:
    """The peer process of one node, and the test's ends of its rings."""

    def __init__(self, node: int, endpoint: str) -> None:
        self.node = node
        self._endpoint = endpoint
        self._joined = JoinedProcesses(TOPOLOGY)
        self.controller: Links = self._joined.links(CONTROLLER)
        self.shard: Links = self._joined.links(SHARD)
        self.region: Callable[[], memoryview] = lambda: memoryview(b"")
        self.version = 0
        for links in (self.controller, self.shard):
            links.refresh()
        self._thread: threading.Thread | None = None
        self._stop = True

    def start(self) -> None:
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"peer-{self.node}")
        self._thread.start()

    def _run(self) -> None:
        links = self._joined.links(PEER)
        sockets = PeerSockets(self._endpoint, links.bell.fd)
        self.agent = PeerAgent(
            PEER,
            self._joined.board,
            links,
            lambda process: self.region() if process == SHARD else None,
            sockets,
            self._joined.stats(PEER),
            lambda: self._stop,
        )
        self.agent.run()

    def stop(self) -> None:
        """It dies: nobody is told."""
        assert self._thread is not None
        self._stop = True
        self._joined.bells[PEER].ring()
        self._thread.join(stretched(20))
        assert not self._thread.is_alive()

    @property
    def is_running(self) -> bool:
        return not self._stop

    def replaced(self, process: int = PEER) -> None:
        """The supervisor makes new rings for the successor of a process that died."""
        self._joined.replace(process)
        self._joined.bells[PEER].ring()
        for links in (self.controller, self.shard):
            for change in links.refresh():
                if change.old is not None:
                    change.old.close()

    def tell(self, *images: list[MetadataRecord]) -> None:
        """The controller sends it the whole image, or one after the other, to be taken in one pass."""
        for records in images:
            self.version += 1
            delta = Delta(self.version, True, False, records)
            frame = node_frame(NodeApi.DELTA, encode_delta(delta))
            self.controller.ends[PEER].send(frame, wakes=records is images[-1])

    def close(self) -> None:
        if not self._stop:
            self.stop()
        self._joined.close()


class PeerCluster(ShardCluster):
    """One partition on three nodes, whose frames go over loopback."""

    def __init__(self, **settings: str) -> None:
        self.endpoints = {node: f"tcp://127.0.0.1:{free_port()}" for node in NODES}
        self.threads = {node: PeerThread(node, self.endpoints[node]) for node in NODES}
        super().__init__(**settings)  # type: ignore[arg-type]

    def start(self, node: int) -> None:
        super().start(node)
        thread = self.threads[node]
        thread.region = lambda: self.worlds[node].region
        if thread.is_running:
            thread.replaced(SHARD)
        else:
            thread.start()
        self._join(node)
        self._tell_brokers()

    def _join(self, node: int) -> None:
        """A shard finds the peer process of its node."""
        world = self.worlds[node]
        world.core.replication.connect(self.threads[node].shard.ends[PEER], world.now_ms)

    def _brokers(self) -> list[MetadataRecord]:
        return [
            Broker(node, epoch, f"{node}.{epoch}", "d", (), self.endpoints[node], fenced=node in self.fenced)
            for node, epoch in self.epochs.items()
        ]

    def _tell_brokers(self) -> None:
        for node, thread in self.threads.items():
            if self.epochs[node]:
                thread.tell([Identity("c", node), *self._brokers()])

    def removed_and_back(self, node: int, *, told: int) -> None:
        """The peer process of a node hears in one pass that another one is removed, and that it is there."""
        brokers = self._brokers()
        others = [broker for broker in brokers if isinstance(broker, Broker) and broker.node_id != node]
        self.threads[told].tell([Identity("c", told), *others], [Identity("c", told), *brokers])

    def peer_dies(self, node: int) -> None:
        """The peer process of a node is killed."""
        self.threads[node].stop()
        self.worlds[node].core.forget(self.threads[node].shard.ends[PEER])
        self.threads[node].replaced()

    def peer_returns(self, node: int) -> None:
        self.threads[node].start()
        self._join(node)
        self._tell_brokers()

    def _carry(self, node: int) -> None:
        """What came for a shard through its ring. Time passes for real between nodes."""
        end = self.threads[node].shard.ends[PEER]
        end.pump()
        table = end.reader.drain()
        self.worlds[node].core.take(end, table.rows, end.reader.memory)
        end.reader.release()

    def until(self, condition: Callable[[], bool], within_s: float = 20.0) -> None:
        """Let everybody work until something is so."""
        patience = Patience(stretched(within_s))
        while not condition():
            assert not patience.is_over, "it did not come about"
            self.run(1)
            time.sleep(0.001)

    def close(self) -> None:
        for thread in self.threads.values():
            thread.close()
