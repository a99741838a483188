"""A real cluster on loopback: three nodes in processes of their own, that can be killed, paused, wiped and started."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from perf.cluster.nodes import free_ports
from ringlog.errors import RinglogError
from ringlog.model import Durability
from ringlog.net.framing import Api
from ringlog.net.messages import CreateTopicRequest, MetadataReply, PartitionMetadata, TopicReply
from tests.support.checkers.disk import check_disk
from tests.support.checkers.history import check_recordings
from tests.support.checkers.recording import Recorder
from tests.support.checkers.replicas import check_replicas
from tests.support.checkers.violations import report
from tests.support.load import Load
from tests.support.node import NodeProcess, wait_for
from tests.support.patience import Patience, stretched
from tests.support.raw_client import RawClient
from tests.support.wires import Wires

TOPIC = "orders"
NODES = (1, 2, 3)
READY_WITHIN_S = 15.0
"""Three nodes that start at once on two cores, elect a controller and register."""
IN_SYNC_WITHIN_S = 15.0
"""Until a node that came back holds all that it missed, and the controller has taken it in."""
BACK_WITHIN_S = 5.0
"""The same for a node that missed little: what is promised of every restart, from the moment that it is ready."""


class ClusterNode(NodeProcess):
    """One node of a cluster. A fault hits all of its processes at once, as on a machine of its own."""

    def __init__(
        self, node_id: int, directory: Path, members: str, *, options: tuple[str, ...], **node: Any
    ) -> None:
        self.node_id = node_id
        super().__init__(
            str(directory / f"node-{node_id}"),
            log_path=str(directory / f"node-{node_id}.log"),
            options=("--node-id", str(node_id), "--cluster", members, "--no-pin", *options),
            **node,
        )

    def name_members(self, members: str) -> None:
        """From its next start on it is told of these nodes."""
        at = self._options.index("--cluster") + 1
        self._options = (*self._options[:at], members, *self._options[at + 1 :])

    def wait_end(self, within_s: float) -> int:
        """Return when it has ended by itself, with its exit code."""
        assert self._supervisor is not None
        return self._supervisor.wait(within_s)

    @property
    def is_running(self) -> bool:
        return self._supervisor is not None and self._supervisor.poll() is None

    def kill_all(self) -> None:
        """kill -9 of every process of the node."""
        assert self._supervisor is not None
        self.watch.observe()
        os.killpg(self.pid, signal.SIGKILL)
        self._supervisor.wait()
        wait_for("the end of its processes", lambda: not self.watch.processes(), stretched(5))

    def freeze(self) -> None:
        """SIGSTOP of every process of the node."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def wipe(self) -> None:
        """Its disk is lost, and an empty one is put in its place."""
        shutil.rmtree(self.data_dir)


class ClusterTrial:
    """Three nodes with one replicated topic, under load, and then the judges."""

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int = 3,
        shards: int = 1,
        options: tuple[str, ...] = ("--tail-bytes-per-shard", str(32 << 20)),
        nodes: Iterable[int] = NODES,
        first: Iterable[int] = (),
        wires: Wires | None = None,
        racks: Mapping[int, str] | None = None,
        **config: str,
    ) -> None:
        """`first`: the nodes that are there at the beginning, and know of no others; all, when none are named."""
        self.partitions = partitions
        self.recordings = str(directory / "recordings")
        os.makedirs(self.recordings)
        ports = {node_id: free_ports() for node_id in nodes}
        hosts = {node_id: wires.host_of(node_id) if wires else "127.0.0.1" for node_id in ports}
        self._places = {node_id: f"{hosts[node_id]}:{port}" for node_id, port in ports.items()}
        self._first = tuple(first) or tuple(ports)
        if wires is not None:
            wires.lead(ports)
        self.nodes = {}
        for node_id in ports:
            words = (*options, "--rack", racks[node_id]) if racks is not None else options
            given: dict[str, Any] = {"shards": shards, "options": words}
            if wires is not None:
                given |= {"host": hosts[node_id], "program": wires.program_of(node_id)}
                given |= {"environment": wires.environment_of(node_id), "options": (*words, "--insecure")}
            members = self._first if node_id in self._first else ports
            self.nodes[node_id] = ClusterNode(node_id, directory, self.members(members), **given)
        self._config = {"min.insync.replicas": "2", **config}

    def members(self, node_ids: Iterable[int]) -> str:
        """These nodes and where they listen for each other, as `--cluster` names them."""
        return ",".join(f"{node_id}@{self._places[node_id]}" for node_id in node_ids)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def __enter__(self) -> ClusterTrial:
        try:
            self.start(*self._first)
            self.create_topic(TOPIC, self.partitions, **self._config)
        except BaseException:
            self._tell_and_destroy(failed=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell_and_destroy(failed=error is not None)

    def _tell_and_destroy(self, *, failed: bool) -> None:
        for node in self.nodes.values():
            if failed:
                sys.stderr.write(node.log_tail())
            if node.is_running:
                node.thaw()
            node.destroy()

    # -- nodes -------------------------------------------------------------------------------------------------

    def start(self, *node_ids: int) -> None:
        """Start nodes, and return when each of them answers."""
        for node_id in node_ids:
            self.nodes[node_id].start(wait=False)
        self.wait_ready(*node_ids)

    def wait_ready(self, *node_ids: int) -> None:
        for node_id in node_ids:
            node = self.nodes[node_id]
            try:
                wait_for(f"node {node_id}", node._is_ready, stretched(READY_WITHIN_S))
            except AssertionError as late:
                raise AssertionError(f"{late}\n{node.log_tail()}") from None
            node.watch.observe()

    def stop(self, *node_ids: int) -> None:
        """Stop nodes in order, one after another."""
        for node_id in node_ids:
            code = self.nodes[node_id].stop()
            assert code == 0, f"node {node_id} ended with {code}\n{self.nodes[node_id].log_tail()}"

    # -- what the cluster says -----------------------------------------------------------------------------------

    def metadata(self, topic: str = TOPIC, *, avoid: Iterable[int] = ()) -> MetadataReply | None:
        """What the node that knows most says of the cluster; None when none answers. One that stood still, or was away,
        may be behind for a moment."""
        found: list[MetadataReply] = []
        for node_id, node in self.nodes.items():
            if node_id in set(avoid) or not node.is_running:
                continue
            with RawClient(node.endpoint, timeout_s=1.0) as client:
                try:
                    found.append(client.metadata([topic]))
                except RinglogError:
                    continue
        return max(found, key=lambda reply: reply.version, default=None)

    def topic(self, topic: str = TOPIC, *, avoid: Iterable[int] = ()) -> list[PartitionMetadata]:
        """The partitions of a topic, by their index; empty when nobody knows."""
        found = self.metadata(topic, avoid=avoid)
        if found is None or not found.topics or found.topics[0].error:
            return []
        return sorted(found.topics[0].partitions, key=lambda one: one.index)

    def leader_of(self, index: int = 0, topic: str = TOPIC) -> int:
        """The node that leads a partition, when one does."""

        def led() -> int:
            partitions = self.topic(topic)
            return max(0, partitions[index].leader_node) if partitions else 0

        return wait_for(f"a leader of {topic}-{index}", led, stretched(READY_WITHIN_S))

    def controller(self, *, avoid: Iterable[int] = ()) -> int:
        """The node whose controller is active."""

        def elected() -> int:
            found = self.metadata(avoid=avoid)
            return max(0, found.controller_id) if found is not None else 0

        return wait_for("a controller", elected, stretched(READY_WITHIN_S))

    def wait_in_sync(
        self, topic: str = TOPIC, count: int | None = None, within_s: float = IN_SYNC_WITHIN_S
    ) -> None:
        """Return when every partition of a topic is led, and so many replicas (all) are in sync."""

        def settled() -> bool:
            partitions = self.topic(topic)
            return bool(partitions) and all(
                one.leader_node in one.isr and len(one.isr) >= (count or len(one.replicas))
                for one in partitions
            )

        try:
            wait_for("all replicas in sync", settled, stretched(within_s), every_s=0.05)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.topic(topic)}") from None

    def create_topic(self, name: str, partitions: int, factor: int = 3, **config: str) -> None:
        """Create a topic on all nodes, again and again until that was done."""
        request = CreateTopicRequest(name, partitions, factor, config)

        def created() -> bool:
            for node in [node for node in self.nodes.values() if node.is_running]:
                with RawClient(node.endpoint, timeout_s=5.0) as client:
                    try:
                        client._ask(Api.CREATE_TOPIC, request, TopicReply)
                    except RinglogError as error:
                        assert error.retriable or error.code == "TOPIC_EXISTS", error
                        if error.code != "TOPIC_EXISTS":
                            continue
                    return True
            return False

        wait_for(f"topic {name}", created, stretched(READY_WITHIN_S), every_s=0.1)
        for node_id in [one for one in self.nodes if self.nodes[one].is_running]:
            # Others may hear of it a moment later.
            others = [other for other in self.nodes if other != node_id]
            wait_for(f"{name} at node {node_id}", lambda: self.topic(name, avoid=others), stretched(5))  # noqa: B023
        self.wait_in_sync(name)

    # -- load and judges -------------------------------------------------------------------------------------------

    def load(self, **settings: Any) -> Load:
        """Load on the topic; use it in a `with`."""
        return Load(self.bootstrap, self.recordings, TOPIC, partitions=self.partitions, **settings)

    def audit(self) -> int:
        """Read the whole topic at its leaders while nobody produces, by plain fetches; the records in it."""
        with Recorder(self.recordings, f"auditor-{time.monotonic_ns()}") as recorder:
            return sum(self._audit(recorder, index) for index in range(self.partitions))

    def _audit(self, recorder: Recorder, index: int) -> int:
        """Read a partition from its start to its end. Leadership may go home meanwhile: then it is read anew there."""
        patience = Patience(stretched(READY_WITHIN_S))
        while True:
            try:
                one = self.topic()[index]
                with RawClient(self.nodes[one.leader_node].endpoint) as client:
                    return _read_all(client, recorder, f"{TOPIC}-{index}", one.partition)
            except (RinglogError, LookupError) as error:
                assert not patience.is_over, f"{TOPIC}-{index} cannot be read: {error}"
                assert isinstance(error, LookupError) or error.retriable, error
                time.sleep(0.05)

    def judge(self, records_min: int = 1) -> None:
        """After the load has ended, with all nodes up: read everything, stop all, and let C1, C2 and C3 speak."""
        self.wait_in_sync()
        read = self.audit()
        assert read >= records_min, f"{read} records in the log: too few to judge by"
        running = [node_id for node_id, node in self.nodes.items() if node.is_running]
        self.stop(*running)
        found = check_recordings(self.recordings, durability_min=Durability.COMMITTED)
        for node in self.nodes.values():
            found += check_disk(
                node.data_dir, expected=[f"{TOPIC}-{index}" for index in range(self.partitions)]
            )
            found += node.watch.leaks(within_s=1)
        found += check_replicas([node.data_dir for node in self.nodes.values()], TOPIC)
        assert not found, report(found)


def _read_all(client: RawClient, recorder: Recorder, label: str, partition: int) -> int:
    """All records of a partition, written down for the judge; how many there are."""
    count, at, end = 0, client.start_offset(partition), client.end_offset(partition)
    recorder.positioned(label, at)
    while at < end:
        records, following = client.read(partition, at)
        assert following > at, f"a fetch of {label} at {at} brings nothing; it ends at {end}"
        recorder.polled(label, [record.offset for record in records], [record.value for record in records])
        count += len(records)
        at = following
    recorder.read_all(label, end)
    return count
