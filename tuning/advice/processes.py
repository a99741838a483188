"""Advice on processes: shards, network processes, pinning, and what they do when idle. Pure."""

from __future__ import annotations

import math

from ringlog.limits import NETS_MAX, SHARDS_MAX
from tuning.advice.curves import write_latency_us, write_rate
from tuning.advice.setting import Policy, Setting
from tuning.doctor.facts import Core, SystemFacts
from tuning.doctor.kernel_text import list_text
from tuning.probe.measured import Measured

SHARD_BYTES_PER_S = 1.1e9
"""What one shard appends: it takes 0.9 CPU seconds per GB of 1 KB records."""
SHARD_MARGIN = 2.0
"""Small records cost several times as much as the large ones that this was measured with."""
NET_SHARE = 0.5
"""Of bare ZeroMQ's rate, what a network process moves beside its own work."""
NETS_MIN_CORES = 8
"""Below it a second network process only takes cores from shards and clients."""
LAPTOP_SHARDS_MAX = 2
SPIN_US_MAX = 1000
SPIN_US_BALANCED_MAX = 100
SPIN_US_MIN = 5


def advise_processes(system: SystemFacts, measured: Measured, policy: Policy) -> list[Setting]:
    """How many of each, where, and what they do when there is nothing to do."""
    cores = system.usable_cores
    nets = _nets(cores, measured, policy)
    net_count = int(nets.value)
    shards = _shards(cores, net_count, measured, policy)
    shard_count = int(shards.value)
    pin = _pin(cores, shard_count, net_count, policy)
    settings = [shards, nets, pin]
    if pin.value:
        settings += _places(system, measured, shard_count, net_count)
    return [*settings, _spin(cores, shard_count, net_count, measured, policy)]


def _nets(cores: int, measured: Measured, policy: Policy) -> Setting:
    wire = max((point.bytes_per_s for point in measured.wires if point.scheme == "tcp"), default=0.0)
    disk = write_rate(measured)
    if policy is Policy.LAPTOP or cores < NETS_MIN_CORES or not wire or not disk:
        return Setting("nets", 1, f"{cores} cores: one network process is enough for them")
    one = wire * NET_SHARE
    wanted = max(1, min(math.ceil(disk / one), cores // 4, NETS_MAX))
    if wanted == 1:
        return Setting(
            "nets", 1, f"one moves about {one / 1e9:.1f} GB/s, and the disk takes {disk / 1e9:.1f}"
        )
    return Setting(
        "nets",
        wanted,
        f"one moves about {one / 1e9:.1f} GB/s, and the disk takes {disk / 1e9:.1f}: "
        "clients spread over them",
    )


def _shards(cores: int, nets: int, measured: Measured, policy: Policy) -> Setting:
    if policy is Policy.LAPTOP:
        count = max(1, min(LAPTOP_SHARDS_MAX, cores // 2))
        return Setting(
            "shards", count, f"half of {cores} cores, {LAPTOP_SHARDS_MAX} at most: the rest is yours"
        )
    # Somebody has to produce and consume, and on a small machine they do it here.
    kept = nets if policy is Policy.THROUGHPUT and cores >= NETS_MIN_CORES else nets + (1 if cores > 2 else 0)
    room = max(1, min(cores - kept, SHARDS_MAX))
    disk = write_rate(measured)
    if not disk:
        return Setting("shards", room, f"{cores} cores without {kept} for the network process and others")
    needed = max(1, math.ceil(disk * SHARD_MARGIN / SHARD_BYTES_PER_S))
    if needed < room:
        return Setting(
            "shards",
            needed,
            f"the disk takes {disk / 1e9:.2f} GB/s, and so many shards append twice that: more would only wait",
        )
    return Setting("shards", room, f"{cores} cores without {kept} for the network process and others")


def _pin(cores: int, shards: int, nets: int, policy: Policy) -> Setting:
    if policy is Policy.LAPTOP:
        return Setting("pin", False, "others use this machine: a pinned shard waits while its core is taken")
    if cores > shards + nets:
        return Setting("pin", True, f"{cores} cores for {shards + nets} busy processes: nobody has to share")
    return Setting(
        "pin",
        False,
        f"{cores} cores for {shards + nets} busy processes and clients: a pinned shard waits for its core",
    )


def _places(system: SystemFacts, measured: Measured, shards: int, nets: int) -> list[Setting]:
    """Cores for shards and network processes, where it matters which: several NUMA nodes, or siblings on one core."""
    physical = _one_per_physical_core(system.cores)
    if len(system.numa_nodes) < 2 and len(physical) == len(system.cores):
        return []
    home = system.storage.numa_node if system.storage.numa_node in system.numa_nodes else system.numa_nodes[0]
    near = [core.number for core in physical if core.numa_node == home]
    if len(near) < shards + nets:
        near += [core.number for core in physical if core.numa_node != home]
    if len(near) < shards + nets:
        return []
    # The first core has most of the machine's interrupts: leave it to others if there are enough.
    chosen = near[1:] if len(near) > shards + nets else near
    distance = {pair.second: pair.round_trip_us for pair in measured.core_pairs}
    net_cores = sorted(chosen[shards : shards + nets], key=lambda core: distance.get(core, 0.0))
    where = (
        f"of NUMA node {home}, where the disk is"
        if len(system.numa_nodes) > 1
        else "that share no execution units"
    )
    return [
        Setting("shard_cores", list_text(chosen[:shards]), f"cores {where}"),
        Setting("net_cores", list_text(net_cores), "beside the shards, and on none of their cores"),
    ]


def _one_per_physical_core(cores: tuple[Core, ...]) -> list[Core]:
    seen: dict[tuple[int, int], Core] = {}
    for core in cores:
        seen.setdefault((core.package, core.physical), core)
    return list(seen.values())


def _spin(cores: int, shards: int, nets: int, measured: Measured, policy: Policy) -> Setting:
    """Spin as long as it pays: as long as a wake-up costs, or, where only latency counts, as long as a write takes."""
    spare = cores - shards - nets
    if policy in (Policy.THROUGHPUT, Policy.LAPTOP):
        why = (
            "work comes in without a pause"
            if policy is Policy.THROUGHPUT
            else "an awake core empties the battery"
        )
        return Setting("spin_us", 0, f"{why}: sleep at once")
    if spare < 1:
        return Setting(
            "spin_us",
            0,
            f"{cores} cores for {shards + nets} busy processes: who spins takes a core from another",
        )
    if policy is Policy.LATENCY:
        write_us = write_latency_us(measured)
        if write_us:
            spin = min(SPIN_US_MAX, math.ceil(write_us * 1.2 / 10) * 10)
            return Setting(
                "spin_us", spin, f"a durable write takes {write_us:.0f} µs: no wake-up before it is done"
            )
    if measured.hop_sleeping_us is None:
        return Setting("spin_us", 0, "what a wake-up costs was not measured")
    # A hop to one that spins and takes longer was disturbed: it says nothing.
    awake_us = measured.hop_spinning_us or 0.0
    wake_us = measured.hop_sleeping_us - (awake_us if awake_us < measured.hop_sleeping_us else 0.0)
    spin = min(SPIN_US_BALANCED_MAX, math.ceil(wake_us))
    if spin < SPIN_US_MIN:
        return Setting("spin_us", 0, f"a wake-up costs only {max(wake_us, 0):.0f} µs")
    return Setting(
        "spin_us", spin, f"as long as a wake-up costs, {wake_us:.0f} µs: never more than twice the best wait"
    )
