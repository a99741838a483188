"""Advice: the settings of a node for a machine and a policy, and what the system should change. Pure."""

from __future__ import annotations

from ringlog.limits import KIB
from tuning.advice.curves import write_latency_us, writes
from tuning.advice.processes import advise_processes
from tuning.advice.setting import Advice, Policy, SystemChange
from tuning.advice.storage import advise_storage
from tuning.doctor.diagnose import diagnose
from tuning.doctor.facts import SystemFacts
from tuning.probe.measured import BUFFERED, DSYNC, FLUSH, FRESH, REUSED, Facts, Measured

EVEN_SHARE = 0.15
"""Methods that are closer than this are as good as each other."""
RESTING = ("cpu governor", "idle cores")
"""Checks whose remedy keeps cores awake."""
METHOD_NAMES = {
    DSYNC: "O_DIRECT with RWF_DSYNC",
    FLUSH: "O_DIRECT, then a flush",
    BUFFERED: "the page cache, then a flush",
}


def advise(facts: Facts, policy: Policy = Policy.BALANCED) -> Advice:
    """All settings, whether they differ from the defaults or not: each has a reason on this machine."""
    system, measured = facts.system, facts.measured
    processes = advise_processes(system, measured, policy)
    count = {setting.name: int(setting.value) for setting in processes if setting.name in ("shards", "nets")}
    storage = advise_storage(system, measured, policy, shards=count["shards"], nets=count["nets"])
    return Advice(
        policy, (*processes, *storage), tuple(_notes(measured)), tuple(system_changes(system, policy))
    )


def system_changes(system: SystemFacts, policy: Policy) -> list[SystemChange]:
    """What the doctor found that is a value of the kernel. A laptop lets its cores rest."""
    return [
        SystemChange(setting, finding.check, finding.cost)
        for finding in diagnose(system)
        if not (policy is Policy.LAPTOP and finding.check in RESTING)
        for setting in finding.settings
    ]


def _notes(measured: Measured) -> list[str]:
    notes = []
    by_method = {
        method: min(points, key=lambda point: point.size_bytes)
        for method in METHOD_NAMES
        if (points := writes(measured, method=method, depth=1))
    }
    if DSYNC in by_method and len(by_method) > 1:
        size = by_method[DSYNC].size_bytes // KIB
        times = ", ".join(
            f"{METHOD_NAMES[method]} {point.p50_us / 1000:.2f} ms" for method, point in by_method.items()
        )
        best = min(by_method, key=lambda method: by_method[method].p50_us)
        slower = by_method[DSYNC].p50_us / by_method[best].p50_us - 1
        verdict = "the best here" if slower < EVEN_SHARE else f"{slower + 1:.1f} × as long as the best here"
        notes.append(f"Flush method: {size} KiB durable by {times}. A node does the first, {verdict}.")
    fresh = write_latency_us(measured)
    reused = list(writes(measured, space=REUSED, depth=1))
    if fresh and reused:
        again = min(reused, key=lambda point: point.size_bytes).p50_us
        notes.append(
            f"Space: a small durable write takes {again / 1000:.2f} ms in space that was written before, "
            f"{fresh / 1000:.2f} ms in {FRESH} space. A node fills the space ahead of slow partitions by itself."
        )
    for scheme, trip_us in measured.wire_round_trip_us.items():
        best_rate = max((p.bytes_per_s for p in measured.wires if p.scheme == scheme), default=0.0)
        notes.append(f"ZeroMQ over {scheme}: {trip_us:.0f} µs there and back, {best_rate / 1e9:.1f} GB/s.")
    return notes
