"""The probe: what is measured, how much of the time each part gets, and the facts that come out."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from ringlog.disk.api import WatchingDisk
from ringlog.disk.choose import open_disk
from ringlog.disk.plain import PlainDisk
from ringlog.limits import KIB, MIB
from tuning.doctor.read_facts import Sources, read_facts
from tuning.probe.budget import Step, run_steps
from tuning.probe.disk import measure_reads, measure_writes
from tuning.probe.measured import (
    BUFFERED,
    DSYNC,
    FLUSH,
    PLAIN,
    CorePair,
    Facts,
    Measured,
    ReadPoint,
    WirePoint,
    WritePoint,
)
from tuning.probe.partner import Partner
from tuning.probe.processes import measure_core_pairs, measure_hop, measure_memcpy, pairs_to_measure
from tuning.probe.wire import free_endpoint, measure_round_trip, measure_wire

BUDGET_S_DEFAULT = 30.0
BUDGET_S_MIN = 1.0
PAIRS_MAX = 8
IN_FLIGHT_BYTES_MAX = 32 * MIB
"""More at once tells nothing new, and takes long on a slow disk."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured. The default is what advice is made from; tests measure less."""

    write_sizes: tuple[int, ...] = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB)
    write_depths: tuple[int, ...] = (1, 4, 16, 64)
    other_sizes: tuple[int, ...] = (4 * KIB, 64 * KIB, MIB)
    """Of the methods that a node does not use."""
    other_depths: tuple[int, ...] = (1, 16)
    reads: tuple[tuple[int, int], ...] = ((4 * KIB, 1), (4 * KIB, 16), (MIB, 1), (MIB, 4))
    frame_sizes: tuple[int, ...] = (KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
    schemes: tuple[str, ...] = ("tcp", "ipc")


class _Results:
    """What the steps have found so far."""

    def __init__(self) -> None:
        self.writes: list[WritePoint] = []
        self.reads: list[ReadPoint] = []
        self.wires: list[WirePoint] = []
        self.pairs: list[CorePair] = []
        self.round_trips: dict[str, float] = {}
        self.numbers: dict[str, float] = {}


def probe(
    directory: str,
    *,
    budget_s: float = BUDGET_S_DEFAULT,
    shape: Shape | None = None,
    on_progress: Callable[[float, str], None] = lambda share, name: None,
    sources: Sources | None = None,
) -> Facts:
    """Look at a machine and measure it, within a time budget, in a directory on the disk in question."""
    system = read_facts(directory, sources)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix="probe-", dir=directory)
    disk = open_disk()
    engine = disk.name
    results = _Results()
    try:
        # In the system's own folder for such things: the path of a socket must be short.
        with Partner() as partner, tempfile.TemporaryDirectory(prefix="rl-") as sockets:
            steps = [
                *_disk_steps(disk, scratch, shape or Shape(), results),
                *_process_steps(partner, [core.number for core in system.cores], results),
                *_wire_steps(partner, shape or Shape(), sockets, results),
            ]
            partner.ask(do="rest")  # it is there, and no longer takes a core for its start
            took_s = run_steps(steps, budget_s, on_progress)
    finally:
        disk.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)
    numbers = results.numbers
    return Facts(
        probed_at=datetime.now(UTC).isoformat(timespec="seconds"),
        system=system,
        measured=Measured(
            engine=engine,
            budget_s=budget_s,
            took_s=round(took_s, 2),
            writes=tuple(results.writes),
            reads=tuple(results.reads),
            memcpy_bytes_per_s=numbers.get("memcpy"),
            hop_sleeping_us=numbers.get("sleeping"),
            hop_spinning_us=numbers.get("spinning"),
            wire_round_trip_us=results.round_trips,
            wires=tuple(results.wires),
            core_pairs=tuple(results.pairs),
        ),
    )


def _disk_steps(disk: WatchingDisk, directory: str, shape: Shape, results: _Results) -> list[Step]:
    def writes(method: str, size: int, depth: int) -> Step:
        def run(seconds: float) -> None:
            engine: WatchingDisk = PlainDisk() if method == PLAIN else disk
            results.writes += measure_writes(
                engine, directory, method=method, size_bytes=size, depth=depth, seconds=seconds
            )
            if engine is not disk:
                engine.shutdown()

        return Step(f"{method}, {size // KIB} KiB, {depth} at a time", 2.0, run)

    def reads(seconds: float) -> None:
        results.reads += measure_reads(disk, directory, list(shape.reads), seconds)

    steps = []
    for size in shape.write_sizes:
        for depth in shape.write_depths:
            if size * depth > IN_FLIGHT_BYTES_MAX:
                continue
            # Methods are compared: they are measured one right after the other.
            methods = [DSYNC]
            if size in shape.other_sizes and depth in shape.other_depths:
                # With one write at a time the engines do the same: only many tell them apart.
                methods += [FLUSH, BUFFERED, *([PLAIN] if depth > 1 else [])]
            steps += [writes(method, size, depth) for method in methods]
    return [*steps, Step("reads", 4.0, reads)]


def _process_steps(partner: Partner, cores: list[int], results: _Results) -> list[Step]:
    def number(name: str, measure: Callable[[float], float]) -> Step:
        def run(seconds: float) -> None:
            results.numbers[name] = measure(seconds)

        return Step(name, 1.0, run)

    def pairs(seconds: float) -> None:
        results.pairs += measure_core_pairs(partner, pairs_to_measure(cores, PAIRS_MAX), seconds)

    ends = cores[:2] or sorted(os.sched_getaffinity(0))[:2]
    steps = [
        number("memcpy", measure_memcpy),
        number("sleeping", lambda seconds: measure_hop(partner, ends, seconds, sleeping=True)),
    ]
    if len(cores) > 1:
        # Two that spin on one core only wait for each other's time slice to end.
        steps.append(number("spinning", lambda seconds: measure_hop(partner, ends, seconds, sleeping=False)))
        steps.append(Step("core to core", 1.0, pairs))
    return steps


def _wire_steps(partner: Partner, shape: Shape, directory: str, results: _Results) -> list[Step]:
    numbers = itertools.count()

    def endpoint(scheme: str) -> str:
        return free_endpoint() if scheme == "tcp" else f"ipc://{directory}/{next(numbers)}"

    def frames(scheme: str, size: int) -> Step:
        def run(seconds: float) -> None:
            results.wires.append(measure_wire(partner, endpoint(scheme), size, seconds))

        return Step(f"ZeroMQ over {scheme}, {size // KIB} KiB", 1.0, run)

    def round_trip(scheme: str) -> Step:
        def run(seconds: float) -> None:
            results.round_trips[scheme] = measure_round_trip(partner, endpoint(scheme), seconds)

        return Step(f"ZeroMQ round trip over {scheme}", 1.0, run)

    return [
        *(frames(scheme, size) for scheme in shape.schemes for size in shape.frame_sizes),
        *(round_trip(scheme) for scheme in shape.schemes),
    ]
