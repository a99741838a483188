"""Checks of the kernel and of what it allows us: version, io_uring, limits, shared memory. Pure."""

from __future__ import annotations

from ringlog.limits import GIB, MIB, TAIL_BYTES_PER_SHARD
from ringlog.ring.board import Topology
from tuning.amounts import binary_text
from tuning.doctor.facts import SystemFacts
from tuning.doctor.finding import Finding, KernelSetting, Level

KERNEL_WANTED = (6, 1)
KERNEL_WITHOUT_MEMLOCK = (5, 12)
"""From here on the memory of a ring is not counted against the limit of locked memory."""
OPEN_FILES_WANTED = 20_000
OPEN_FILES_MIN = 1_024
MEMLOCK_WANTED_BYTES = 64 * MIB
REGION_BYTES_MIN = 16 * MIB
"""A shard with less for its buffers does not start."""

_KERNEL_UPGRADES = {
    "debian": "apt-get install linux-image-amd64, then reboot",
    "ubuntu": "apt-get install linux-generic-hwe-$(lsb_release -rs), then reboot",
    "fedora": "dnf upgrade kernel, then reboot",
    "rhel": "dnf upgrade kernel, then reboot",
    "arch": "pacman -Syu linux, then reboot",
}


def check_version(facts: SystemFacts) -> Finding:
    """Linux 6.1 has DEFER_TASKRUN, which lets a shard choose when completions interrupt it."""
    wanted = ".".join(map(str, KERNEL_WANTED))
    good = facts.kernel_version >= KERNEL_WANTED
    return Finding(
        check="kernel",
        level=Level.OK if good else Level.SLOW,
        found=f"Linux {facts.kernel}",
        wanted=f"Linux {wanted} or newer",
        cost="" if good else "completions interrupt a shard whenever they like: latency under load",
        fix=""
        if good
        else _KERNEL_UPGRADES.get(facts.distribution, f"install Linux {wanted} or newer, then reboot"),
    )


def check_io_uring(facts: SystemFacts) -> Finding:
    """A ring was tried; where it was refused, the sysctl and the filter say why."""
    wanted = "io_uring works"
    if facts.io_uring_refusal is None:
        return Finding(check="io_uring", level=Level.OK, found="works", wanted=wanted)
    settings: tuple[KernelSetting, ...] = ()
    if facts.io_uring_disabled not in (None, "0"):
        found = f"kernel.io_uring_disabled is {facts.io_uring_disabled}"
        fix = "sysctl -w kernel.io_uring_disabled=0"
        settings = (KernelSetting("/proc/sys/kernel/io_uring_disabled", "0"),)
    elif facts.seccomp:
        found = "forbidden by a seccomp filter"
        fix = "docker run --security-opt seccomp=unconfined … (or a profile that allows the three io_uring calls)"
    else:
        found, fix = "refused", facts.io_uring_refusal
    return Finding(
        check="io_uring",
        level=Level.SLOW,
        found=found,
        wanted=wanted,
        cost="the plain engine serves: just as durable, and several times slower with many partitions",
        fix=fix,
        settings=settings,
    )


def check_memlock(facts: SystemFacts) -> Finding:
    """Before Linux 5.12 each ring is locked memory."""
    limit = facts.memlock_bytes
    needless = facts.kernel_version >= KERNEL_WITHOUT_MEMLOCK
    good = needless or limit is None or limit >= MEMLOCK_WANTED_BYTES
    return Finding(
        check="memlock",
        level=Level.OK if good else Level.SLOW,
        found="unlimited" if limit is None else binary_text(limit),
        wanted="any (not counted from Linux 5.12 on)"
        if needless
        else f"{binary_text(MEMLOCK_WANTED_BYTES)} or more",
        cost="" if good else "rings may be refused (ENOMEM), and the slower plain engine serves",
        fix="" if good else "ulimit -l unlimited (in a unit of systemd: LimitMEMLOCK=infinity)",
    )


def check_open_files(facts: SystemFacts) -> Finding:
    """A descriptor for each partition and each connection; the network process takes half of them."""
    limit = facts.open_files_hard
    level = Level.OK
    if limit is not None and limit < OPEN_FILES_WANTED:
        level = Level.BROKEN if limit < OPEN_FILES_MIN else Level.SLOW
    return Finding(
        check="open files",
        level=level,
        found="unlimited" if limit is None else f"{limit:,} at most",
        wanted=f"{OPEN_FILES_WANTED:,} or more",
        cost=""
        if level is Level.OK
        else f"no more than {(limit or 0) // 2:,} connections, and as many partitions in a shard",
        fix=""
        if level is Level.OK
        else f"prlimit --nofile={OPEN_FILES_WANTED} ringlog start (in a unit: LimitNOFILE={OPEN_FILES_WANTED})",
    )


def check_shared_memory(facts: SystemFacts) -> Finding:
    """Rings and buffers of all processes lie in /dev/shm."""
    shards = max(1, len(facts.cores))
    rings = rings_bytes(nets=1, shards=shards)
    full, least = rings + 2 * shards * TAIL_BYTES_PER_SHARD, rings + 2 * shards * REGION_BYTES_MIN
    free = facts.shm_free_bytes
    wanted = f"{binary_text(_whole_mib(full))} free for {shards} shards"
    if free is None:
        return Finding(
            check="shared memory",
            level=Level.BROKEN,
            found="no /dev/shm",
            wanted=wanted,
            cost="a node does not start",
            fix="mount -t tmpfs tmpfs /dev/shm",
        )
    level = Level.BROKEN if free < least else Level.SLOW if free < full else Level.OK
    size = -(-full // GIB)
    return Finding(
        check="shared memory",
        level=level,
        found=f"{binary_text(_whole_mib(free))} free",
        wanted=wanted,
        cost={
            Level.OK: "",
            Level.SLOW: "smaller buffers: readers sooner have to be served from the disk",
            Level.BROKEN: f"a node with {shards} shards does not start",
        }[level],
        fix=""
        if level is Level.OK
        else f"docker run --shm-size={size}g …"
        if facts.in_container
        else f"mount -o remount,size={size}G /dev/shm",
    )


def rings_bytes(*, nets: int, shards: int) -> int:
    """Memory of all rings between the processes of a node."""
    return sum(link.request_bytes + link.reply_bytes for link in Topology(nets=nets, shards=shards).links)


def _whole_mib(nbytes: int) -> int:
    return nbytes // MIB * MIB
