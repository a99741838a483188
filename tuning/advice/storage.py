"""Advice on the disk: engine, queue depth, group size, segments, space ahead, buffers. Pure."""

from __future__ import annotations

import math

from ringlog.limits import (
    GIB,
    GROUP_BYTES_MIN,
    MIB,
    PREALLOCATE_BYTES_MAX,
    SEGMENT_BYTES_DEFAULT,
    TAIL_BYTES_PER_SHARD,
    WRITE_BYTES_TARGET,
)
from tuning.advice.curves import knee, rates_by_depth, rates_by_size, write_rate, writes
from tuning.advice.setting import Policy, Setting
from tuning.amounts import binary_text
from tuning.doctor.check_kernel import REGION_BYTES_MIN, rings_bytes
from tuning.doctor.facts import SystemFacts
from tuning.probe.measured import PLAIN, Measured

GROUP_BYTES_LEAST = 256 * 1024
DEPTH_LEAST = 4
RATE_SHARE = {Policy.BALANCED: 0.9, Policy.LATENCY: 0.7, Policy.THROUGHPUT: 0.98, Policy.LAPTOP: 0.9}
"""Of the disk's best rate, what the smallest group or depth must reach."""
AHEAD_S = 0.1
"""Space that a busy partition reserves ahead: what the whole disk writes in this time."""
SEGMENTS_MIN = 256
"""That fit into the free space: retention frees whole ones."""
PLAIN_FASTER = 1.1


def advise_storage(
    system: SystemFacts, measured: Measured, policy: Policy, *, shards: int, nets: int
) -> list[Setting]:
    """The settings that depend on the disk and on memory."""
    return [
        _engine(measured),
        _depth(measured, policy, shards),
        _group(measured, policy),
        _tail(system, policy, shards=shards, nets=nets),
        _segment(system, policy),
        _ahead(system, measured, policy),
    ]


def _engine(measured: Measured) -> Setting:
    ratios = [
        plain.bytes_per_s / ring.bytes_per_s
        for plain in writes(measured, method=PLAIN)
        for ring in writes(measured, size_bytes=plain.size_bytes, depth=plain.depth)
    ]
    if measured.engine != "io_uring":
        return Setting("disk_engine", "auto", "io_uring does not work here: `ringlog doctor` says why")
    if not ratios:
        return Setting("disk_engine", "auto", "io_uring works")
    if min(ratios) > PLAIN_FASTER:
        return Setting(
            "disk_engine",
            "plain",
            f"one system call per write is {min(ratios):.1f} × as fast as io_uring on this disk",
        )
    return Setting(
        "disk_engine",
        "auto",
        f"io_uring with many writes at once is {1 / min(ratios):.1f} × as fast as one after the other",
    )


def _depth(measured: Measured, policy: Policy, shards: int) -> Setting:
    rates = rates_by_depth(measured)
    depth = knee(rates, RATE_SHARE[policy])
    if depth is None or depth == max(rates):
        return Setting("disk_depth", 0, "more writes at once are still faster: no bound")
    each = max(DEPTH_LEAST, math.ceil(depth / shards))
    return Setting(
        "disk_depth",
        each,
        f"{depth} writes at once reach {rates[depth] / max(rates.values()):.0%} of the best rate: "
        "what waits beyond that joins larger writes",
    )


def _group(measured: Measured, policy: Policy) -> Setting:
    rates = rates_by_size(measured)
    size = knee(rates, RATE_SHARE[policy])
    if policy is Policy.THROUGHPUT or size is None:
        return Setting(
            "group_bytes", WRITE_BYTES_TARGET, "the largest: few writes, each as cheap per byte as can be"
        )
    size = max(GROUP_BYTES_LEAST, GROUP_BYTES_MIN, min(size, WRITE_BYTES_TARGET))
    reached = rates.get(size, 0.0) / max(rates.values())
    return Setting(
        "group_bytes",
        size,
        f"writes of {binary_text(size)} reach {reached:.0%} of the best rate: larger ones only take longer",
    )


def _tail(system: SystemFacts, policy: Policy, *, shards: int, nets: int) -> Setting:
    wanted = {Policy.THROUGHPUT: GIB, Policy.LAPTOP: 64 * MIB}.get(policy, TAIL_BYTES_PER_SHARD)
    part, part_name = (4, "a quarter") if policy is Policy.THROUGHPUT else (8, "an eighth")
    why = {
        Policy.THROUGHPUT: "readers that are a while behind are still served from memory",
        Policy.LAPTOP: "memory is for others",
    }.get(policy, "the recent tail of a shard")
    bounds: dict[str, int] = {}
    if system.memory_available_bytes:
        bounds[f"{part_name} of the free memory"] = system.memory_available_bytes // part // shards
    if system.shm_free_bytes is not None:
        room = system.shm_free_bytes - rings_bytes(nets=nets, shards=shards)
        bounds["half of /dev/shm beside the rings"] = room // 2 // shards
    for what, bound in bounds.items():
        if bound < wanted:
            wanted, why = bound, f"{what}, for {shards} shard{'' if shards == 1 else 's'}"
    return Setting("tail_bytes_per_shard", max(REGION_BYTES_MIN, wanted // (16 * MIB) * (16 * MIB)), why)


def _segment(system: SystemFacts, policy: Policy) -> Setting:
    most = 128 * MIB if policy is Policy.LAPTOP else SEGMENT_BYTES_DEFAULT
    free = system.storage.free_bytes
    size = most if free is None else min(most, max(16 * MIB, _power_of_two(free // SEGMENTS_MIN)))
    if size == SEGMENT_BYTES_DEFAULT:
        return Setting("segment.bytes", size, "there is room for hundreds of them")
    return Setting(
        "segment.bytes",
        size,
        f"{SEGMENTS_MIN} and more fit into what is free, so that retention can free it in small steps",
    )


def _ahead(system: SystemFacts, measured: Measured, policy: Policy) -> Setting:
    rate = write_rate(measured)
    most = 8 * MIB if policy is Policy.LAPTOP else PREALLOCATE_BYTES_MAX
    if not rate:
        return Setting("preallocate_bytes_max", most, "the disk was not measured")
    wanted = 2 * _power_of_two(int(rate * AHEAD_S) - 1)
    size = min(most, max(MIB, wanted))
    free = system.storage.free_bytes
    if free is not None and size > free // 1024:
        size = max(MIB, _power_of_two(free // 1024))
        return Setting(
            "preallocate_bytes_max", size, "a thousandth of what is free: many partitions reserve at once"
        )
    return Setting(
        "preallocate_bytes_max",
        size,
        f"what the disk writes in {AHEAD_S * 1000:.0f} ms: more only holds space",
    )


def _power_of_two(number: int) -> int:
    """The largest that is not above.

    >>> _power_of_two(1000), _power_of_two(1024), _power_of_two(0)
    (512, 1024, 1)
    """
    return 1 << max(0, number.bit_length() - 1)
