"""A client process of a comparison: connects, says that it is ready, and does one job when it is told to go.

`python -m perf.compare.worker` reads the job from its first line and the word to go from its second; it answers
with a line each. The clock is the machine's monotonic one, the same for all processes.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from perf.compare import open_loop
from perf.compare.clients.api import ConsumerClient, PacedProducer, Place, ProducerClient, Reader
from perf.compare.model import Durability
from perf.compare.payload import Payload, checksum_of
from perf.compare.systems import SYSTEMS

PATIENCE_S = 150.0
"""A job that takes longer is given up."""


class Job(msgspec.Struct, frozen=True):
    """What a worker is to do."""

    kind: str
    """`produce`, `consume`, `look`, `count`, `send` or `receive`."""
    system: str
    address: str
    topic: str
    partitions: int
    durability: Durability
    record_bytes: int
    records: int
    rate_per_s: float = 0.0
    bursts_per_s: float = 0.0


class Outcome(msgspec.Struct, frozen=True):
    """What it has done."""

    records: int
    seconds: float
    cpu_s: float
    checksum: int = 0
    waits_ms: dict[str, float] = {}
    """Percentiles, by name."""


class WorkerFailed(Exception):
    """A worker ended with an error; its last words."""


def perform(job: Job) -> Outcome:
    """Connect, wait, work."""
    system = SYSTEMS[job.system]
    place = Place(job.address, job.topic, job.partitions, job.durability, paced=job.kind == "send")
    payload = Payload(job.record_bytes)
    match job.kind:
        case "produce":
            return _produce(job, system.producer(place), payload)
        case "send":
            if system.sender is None:
                raise WorkerFailed(f"{job.system} cannot send at given times")
            return _send(job, system.sender(place), payload)
        case "consume":
            return _consume(job, system.consumer(place))
    return _read(job, system.reader(place))


def _produce(job: Job, producer: ProducerClient, payload: Payload) -> Outcome:
    with _working(producer) as used_s:
        done = producer.produce(payload, job.records)
        return Outcome(done.records, done.seconds, used_s())


def _send(job: Job, sender: PacedProducer, payload: Payload) -> Outcome:
    plan = open_loop.Plan(job.record_bytes, job.records, job.rate_per_s, job.bursts_per_s)
    with _working(sender) as used_s:
        return Outcome(job.records, open_loop.send(sender, plan, payload), used_s())


def _consume(job: Job, consumer: ConsumerClient) -> Outcome:
    with _working(consumer) as used_s:
        done = consumer.consume(job.records)
        return Outcome(done.records, done.seconds, used_s())


def _read(job: Job, reader: Reader) -> Outcome:
    total = 0

    def look(values: Sequence[object]) -> None:
        nonlocal total
        total += checksum_of(values)

    with _working(reader) as used_s:
        if job.kind == "count":
            return Outcome(open_loop.count(reader, job.records), 0.0, 0.0)
        if job.kind == "look":
            done = reader.read(job.records, look)
            return Outcome(done.records, done.seconds, used_s(), total & ((1 << 64) - 1))
        began = time.perf_counter()
        waits_ms = open_loop.receive(reader, job.records)
        taken_s = time.perf_counter() - began
        return Outcome(len(waits_ms), taken_s, used_s(), waits_ms=open_loop.percentiles(waits_ms))


@contextmanager
def _working(client: ProducerClient | ConsumerClient) -> Iterator[Callable[[], float]]:
    """Say that the client is connected, wait for the word to go; in the block, the CPU seconds that were used since."""
    _ready()
    before_s = cpu_s()
    yield lambda: cpu_s() - before_s
    client.close()


def cpu_s() -> float:
    """CPU seconds of this process and of the tools that it has run."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if sys.stdin.readline().strip() != "go":
        raise SystemExit("the comparison has ended before the work began")


@contextmanager
def workers(jobs: Sequence[Job]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A process for each job, all connected and waiting when the block begins; none is left after it."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "perf.compare.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in jobs
    ]  # fmt: skip
    try:
        for process, job in zip(started, jobs, strict=True):
            _tell(process, msgspec.json.encode(job))
            if _hear(process) != b"ready":
                raise WorkerFailed(_last_words(process, job))
        yield started
    finally:
        _kill_all(started)
        for process in started:
            process.communicate()


def run_jobs(jobs: Sequence[Job]) -> list[Outcome]:
    """Do jobs at the same time, each in its process."""
    with workers(jobs) as started:
        late = threading.Timer(PATIENCE_S, _kill_all, [started])
        late.daemon = True
        late.start()
        for process in started:
            _tell(process, b"go")
        outcomes = []
        for process, job in zip(started, jobs, strict=True):
            line = _hear(process)
            if not line.startswith(b"{"):
                raise WorkerFailed(_last_words(process, job))
            outcomes.append(msgspec.json.decode(line, type=Outcome))
        late.cancel()
        return outcomes


def _kill_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()


def _tell(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()


def _hear(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _last_words(process: subprocess.Popen[bytes], job: Job) -> str:
    assert process.stderr is not None
    said = process.stderr.read().decode(errors="replace").strip().splitlines()
    return f"{job.system} {job.kind}: {said[-1] if said else f'gave no answer within {PATIENCE_S:.0f} s'}"


def main() -> None:
    job = msgspec.json.decode(sys.stdin.readline(), type=Job)
    outcome = perform(job)
    sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
