"""Runs a comparison: rounds of all systems in turns, each broker in a fresh directory, every delivery verified."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from perf.compare import limits
from perf.compare.model import Durability, Latency, Samples, Throughput, Workload
from perf.compare.payload import Payload, checksum_of, text_record
from perf.compare.scale import (
    CompareScale,
    first_records,
    latency_workloads,
    rates_of,
    records_for,
    scaling_workloads,
    throughput_workloads,
)
from perf.compare.systems import PEERS, SYSTEMS, Broker, Peer
from perf.compare.worker import Job, Outcome, WorkerFailed, run_jobs
from perf.peers.fetch import PeerUnavailable
from perf.peers.process import cost_of
from perf.settle import settle

BURSTS_PER_S = 1_000.0
PARTS = ("throughput", "latency", "scaling")
Say = Callable[[str], None]


class DeliveryFailed(Exception):
    """Not every record that was acknowledged came back as it was sent."""


class Comparison:
    """One run. What it measures goes into `samples`, which may hold those of earlier runs."""

    def __init__(
        self,
        scale: CompareScale,
        peers: Sequence[str],
        directory: str,
        samples: Samples,
        say: Say,
        keep: Callable[[], None],
        *,
        fetch: bool,
        within_s: float = float("inf"),
    ) -> None:
        self._scale = scale
        self._peers = [PEERS[name] for name in peers]
        self._directory = directory
        self._samples = samples
        self._say = say
        self._keep = keep
        self._fetch = fetch
        self._until_s = time.monotonic() + within_s
        self._topics = (f"t{number}" for number in itertools.count())
        self._records = {sample.key: sample.records for sample in samples.throughput}
        """How many records a measurement of an earlier round sent: later ones send as many."""
        self.undelivered: list[str] = []

    def run(self, parts: Sequence[str], rounds: int) -> None:
        """Measure so many rounds of the parts, and the limits of the machine once in each."""
        scale = self._scale
        self._samples.skipped.clear()  # what an earlier run could not have may be here by now
        workloads = {"throughput": throughput_workloads, "scaling": scaling_workloads}
        first = self._samples.next_round
        for number in range(first, first + rounds):
            self._samples.limits.append(
                {"round": number, **limits.measure(self._directory, scale.limit_bytes)}
            )
            turned = number % len(self._peers)
            for peer in self._peers[turned:] + self._peers[:turned]:
                for part in parts:
                    if part == "latency":
                        self._sessions(number, peer, list(latency_workloads(scale)), self._latency)
                    else:
                        self._sessions(number, peer, list(workloads[part](scale)), self._throughput)

    def _sessions(
        self,
        number: int,
        peer: Peer,
        workloads: Sequence[Workload],
        measure: Callable[[int, Broker, str, Workload], None],
    ) -> None:
        if peer.name in self._samples.skipped:
            return
        offered = list(dict.fromkeys(peer.offered(workload) for workload in workloads))
        for durabilities in peer.sessions:
            wanted = [workload for workload in offered if workload.durability in durabilities]
            if not wanted:
                continue
            try:
                with self._fresh(peer.name) as own, peer.start(own, durabilities[0], self._fetch) as broker:
                    for name, workload in itertools.product(peer.systems, wanted):
                        self._one(number, broker, name, workload, measure)
            except PeerUnavailable as missing:
                self._skip(peer.name, str(missing))
                return

    def _one(
        self,
        number: int,
        broker: Broker,
        name: str,
        workload: Workload,
        measure: Callable[[int, Broker, str, Workload], None],
    ) -> None:
        key = f"{name}.{workload.name}"
        if SYSTEMS[name].python_api and (workload.durability is Durability.D0 or not self._scale.python_apis):
            return
        if time.monotonic() > self._until_s:
            self._say(f"no time is left for {key}")
            return
        try:
            measure(number, broker, name, workload)
            self._keep()
        except (WorkerFailed, PeerUnavailable, OSError) as failed:
            self._skip(key, str(failed))
        except DeliveryFailed as failed:
            self.undelivered.append(f"{key}: {failed}")
            self._skip(key, str(failed))

    def _skip(self, what: str, why: str) -> None:
        self._samples.skipped[what] = why
        self._say(f"skipped {what}: {why}")

    @contextmanager
    def _fresh(self, name: str) -> Iterator[str]:
        own = tempfile.mkdtemp(prefix=f"{name}-", dir=self._directory)
        try:
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)
            # What one system leaves behind is not written back, or trimmed, at another's cost.
            settle(self._directory)

    # -- saturation ------------------------------------------------------------------------------------------

    def _throughput(self, number: int, broker: Broker, name: str, workload: Workload) -> None:
        records = self._records.get(f"produce.{name}.{workload.name}")
        if records is None:
            records = self._calibrate(broker, name, workload)
        found = self._produce_and_consume(number, broker, name, workload, records)
        self._samples.throughput += found
        for sample in found:
            self._records[sample.key] = sample.records
            self._say(
                f"{number} {sample.key}: {sample.records_per_s:,.0f} records/s, {sample.mb_per_s:,.0f} MB/s"
            )

    def _calibrate(self, broker: Broker, name: str, workload: Workload) -> int:
        """How many records this system takes in the time that a measurement has: tried with more and more of them,
        since a short try says little of a fast system."""
        scale = self._scale
        records = first_records(workload, scale)
        while scale.seconds:
            topic = next(self._topics)
            broker.create_topic(topic, workload.partitions, workload.durability)
            tried = run_jobs([job_of("produce", broker, topic, name, workload, records)])[0]
            broker.delete_topic(topic, workload.partitions)
            rate_per_s = tried.records / tried.seconds * SYSTEMS[name].warm_up
            found = records_for(rate_per_s, workload.record_bytes, scale)
            if tried.seconds > scale.seconds / 5 or found < 4 * records or SYSTEMS[name].warm_up > 1:
                return found
            records *= 4
        return records

    def _produce_and_consume(
        self, number: int, broker: Broker, name: str, workload: Workload, records: int
    ) -> list[Throughput]:
        topic = next(self._topics)
        broker.create_topic(topic, workload.partitions, workload.durability)
        try:
            settle(self._directory)
            shares = split(records, workload.producers)
            producers = [job_of("produce", broker, topic, name, workload, share) for share in shares]
            produced = self._timed(number, broker, name, workload, "produce", producers, records)
            if workload.durability is Durability.D0:
                return [
                    self._as_delivered(
                        produced, run_jobs([job_of("count", broker, topic, name, workload, records)])
                    )
                ]
            consumer = job_of("consume", broker, topic, name, workload, records)
            consumed = self._timed(number, broker, name, workload, "consume", [consumer], records)
            looked = run_jobs([job_of("look", broker, topic, name, workload, records)])[0]
            verify(looked, records, expected_checksum(name, workload, shares))
            return [produced, consumed]
        finally:
            broker.delete_topic(topic, workload.partitions)

    @staticmethod
    def _as_delivered(produced: Throughput, counted: Sequence[Outcome]) -> Throughput:
        share = counted[0].records / produced.records
        rate_per_s = produced.records_per_s * share
        return msgspec.structs.replace(produced, records_per_s=rate_per_s, delivered_share=share)

    def _timed(
        self,
        number: int,
        broker: Broker,
        name: str,
        workload: Workload,
        operation: str,
        jobs: Sequence[Job],
        records: int,
    ) -> Throughput:
        before = cost_of(broker.pid)
        outcomes = run_jobs(jobs)
        after = cost_of(broker.pid)
        return Throughput(
            round=number,
            system=name,
            workload=workload,
            operation=operation,
            records=records,
            records_per_s=sum(outcome.records / outcome.seconds for outcome in outcomes),
            broker_cpu_s=after.cpu_s - before.cpu_s,
            client_cpu_s=sum(outcome.cpu_s for outcome in outcomes),
            broker_rss_bytes=after.rss_bytes,
        )

    # -- latency ---------------------------------------------------------------------------------------------

    def _latency(self, number: int, broker: Broker, name: str, workload: Workload) -> None:
        if SYSTEMS[name].sender is None:
            return
        saturation = self._flow(broker, name, workload)
        self._say(f"{number} flow.{name}.{workload.name}: {saturation:,.0f} records/s through")
        rates = rates_of(self._scale, saturation)
        # A broker that compiles itself while it runs has not met such small requests yet: one round is not counted.
        self.open_loop(number, broker, name, workload, "warm-up", max(rates.values()))
        for load, rate_per_s in rates.items():
            found = self.open_loop(number, broker, name, workload, load, rate_per_s)
            self._samples.latency.append(found)
            self._say(f"{number} {found.key}: p50 {found.p50_ms:.2f} ms, p99 {found.p99_ms:.2f} ms")

    def _flow(self, broker: Broker, name: str, workload: Workload) -> float:
        """Records per second when producer and consumer work at once: what loads are shares of."""
        count = self._records.get(f"produce.{name}.{workload.name}") or self._calibrate(
            broker, name, workload
        )
        topic = next(self._topics)
        broker.create_topic(topic, workload.partitions, workload.durability)
        try:
            kinds = ("consume", "produce")
            outcomes = run_jobs([job_of(kind, broker, topic, name, workload, count) for kind in kinds])
        finally:
            broker.delete_topic(topic, workload.partitions)
        return count / max(outcome.seconds for outcome in outcomes)

    def open_loop(
        self, number: int, broker: Broker, name: str, workload: Workload, load: str, rate_per_s: float
    ) -> Latency:
        """Send at a rate that does not wait; how long records took to reach a consumer."""
        scale = self._scale
        wanted = int(rate_per_s * scale.latency_seconds)
        records = max(min(wanted, 2 * scale.bytes_max // workload.record_bytes), 20)
        topic = next(self._topics)
        broker.create_topic(topic, workload.partitions, workload.durability)
        try:
            settle(self._directory)
            receiver = job_of("receive", broker, topic, name, workload, records)
            sender = job_of("send", broker, topic, name, workload, records, rate_per_s)
            received, sent = run_jobs([receiver, sender])
        finally:
            broker.delete_topic(topic, workload.partitions)
        if received.records != records:
            raise DeliveryFailed(f"{received.records} records came of {records} that were sent")
        return Latency(
            round=number,
            system=name,
            workload=workload,
            load=load,
            records_per_s=rate_per_s,
            achieved_per_s=sent.records / sent.seconds,
            **received.waits_ms,
        )


def job_of(
    kind: str,
    broker: Broker,
    topic: str,
    name: str,
    workload: Workload,
    records: int,
    rate_per_s: float = 0.0,
) -> Job:
    """The job of one worker."""
    return Job(
        kind=kind,
        system=name,
        address=broker.address,
        topic=topic,
        partitions=workload.partitions,
        durability=workload.durability,
        record_bytes=workload.record_bytes,
        records=records,
        rate_per_s=rate_per_s,
        bursts_per_s=BURSTS_PER_S,
    )


def split(records: int, producers: int) -> list[int]:
    """Shares that differ by one at most.

    >>> split(10, 3)
    [4, 3, 3]
    """
    return [records // producers + (number < records % producers) for number in range(producers)]


def expected_checksum(name: str, workload: Workload, shares: Sequence[int]) -> int:
    """What the values of all producers sum up to."""
    if SYSTEMS[name].text_payload:
        return sum(shares) * checksum_of([text_record(workload.record_bytes)]) & ((1 << 64) - 1)
    payload = Payload(workload.record_bytes)
    return sum(payload.checksum(share) for share in shares) & ((1 << 64) - 1)


def verify(looked: Outcome, records: int, checksum: int) -> None:
    """Every record came back, as it was sent."""
    if looked.records != records:
        raise DeliveryFailed(f"{looked.records} records came back of {records}")
    if looked.checksum != checksum:
        raise DeliveryFailed(f"the checksum of {records} records is {looked.checksum:x}, not {checksum:x}")
