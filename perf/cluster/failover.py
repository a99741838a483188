"""From kill -9 of a leader's node to the next acknowledged write, and what writers of other partitions notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from perf.cluster.nodes import BenchCluster, in_sync, topic_on, wait_for
from ringlog.client.admin import Admin
from ringlog.client.futures import RecordFuture
from ringlog.client.producer import Producer
from ringlog.errors import RinglogError

PARTITIONS = 6
SEND_EVERY_S = 0.005
CALM_S = 0.3
"""Of writes without a disturbance, before each kill."""


class Failover(NamedTuple):
    """What one kill did."""

    writable_s: float
    """Until all partitions of the dead node had acknowledged a record that was sent after the kill."""
    others_pause_s: float
    """The longest that a partition with another leader went without an acknowledgement."""
    was_controller: bool


class Writer(threading.Thread):
    """Sends to one partition, a record every few milliseconds, and notes when each was sent and acknowledged."""

    def __init__(self, producer: Producer, topic: str, partition: int) -> None:
        super().__init__(daemon=True, name=f"writer-{partition}")
        self.partition = partition
        self.acks: list[tuple[float, float]] = []
        """(sent, acknowledged), as they were acknowledged."""
        self.refused = 0
        self._producer, self._topic = producer, topic
        self._stopped = threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            sent = time.monotonic()
            try:
                future = self._producer.produce(self._topic, b"x" * 100, partition=self.partition)
                future.add_done_callback(self._noted(sent))
            except RinglogError:
                self.refused += 1  # there is no room: what waits comes first
            due = max(due + SEND_EVERY_S, time.monotonic() - SEND_EVERY_S)
            self._stopped.wait(max(0.0, due - time.monotonic()))

    def _noted(self, sent: float) -> Callable[[RecordFuture], None]:
        def done(future: RecordFuture) -> None:
            if future.exception() is None:
                self.acks.append((sent, time.monotonic()))

        return done

    def first_ack_after(self, moment: float) -> float | None:
        """When a record that was sent after a moment was first acknowledged."""
        return min((acked for sent, acked in list(self.acks) if sent > moment), default=None)

    def longest_pause_s(self, since: float, until: float) -> float:
        """Between two acknowledgements, within a span of time."""
        times = [since, *sorted(acked for _, acked in list(self.acks) if since < acked < until), until]
        return max(after - before for before, after in pairwise(times))

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def measure_failovers(cluster: BenchCluster, kills: int) -> list[Failover]:
    """Kill the nodes in turn, each while it leads something, and start it again."""
    found: list[Failover] = []
    with (
        topic_on(cluster.bootstrap, PARTITIONS, 3) as topic,
        Admin(cluster.bootstrap) as admin,
        Producer(bootstrap=cluster.bootstrap, linger_ms=0) as producer,
    ):
        writers = [Writer(producer, topic, partition) for partition in range(PARTITIONS)]
        for writer in writers:
            writer.start()
        try:
            found.extend(_kill(cluster, admin, topic, writers, number) for number in range(kills))
        finally:
            for writer in writers:
                writer.stop()
    return found


def _kill(cluster: BenchCluster, admin: Admin, topic: str, writers: list[Writer], number: int) -> Failover:
    # Else leaders would go back to a node that was started again in the middle of the next measurement.
    wait_for("all replicas in sync, and led as they shall be", lambda: in_sync(admin, topic, preferred=True))
    for writer in writers:
        writer.acks.clear()
    calm_from = time.monotonic()
    wait_for("a calm moment", lambda: all(writer.first_ack_after(calm_from) for writer in writers))
    time.sleep(CALM_S)
    leaders = {one.index: one.leader for one in admin.describe_topic(topic).partitions}
    victim = sorted(set(leaders.values()))[number % len(set(leaders.values()))]
    was_controller = admin.describe_cluster().controller_id == victim
    killed_at = time.monotonic()
    cluster.nodes[victim].kill()
    led = [writer for writer in writers if leaders[writer.partition] == victim]
    others = [writer for writer in writers if leaders[writer.partition] != victim]
    wait_for("an acknowledgement of each", lambda: all(w.first_ack_after(killed_at) for w in writers), 0.002)
    writable = max(writer.first_ack_after(killed_at) or 0.0 for writer in led)
    until = time.monotonic()
    pause_s = max((writer.longest_pause_s(killed_at, until) for writer in others), default=0.0)
    cluster.nodes[victim].start()
    cluster.nodes[victim].wait_ready()
    return Failover(writable - killed_at, pause_s, was_controller)
