"""Reads the facts of a machine from /proc, /sys and /etc, or from a tree that looks like them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import msgspec

from ringlog.disk.choose import open_disk
from ringlog.errors import DiskEngineUnavailable
from tuning.doctor.facts import Core, StorageFacts, SystemFacts
from tuning.doctor.interpreter import describe_interpreter
from tuning.doctor.kernel_text import choices, chosen, cpu_quota, field_of, kib_of, limit_of, number_list
from tuning.doctor.mounts import mount_of, read_mounts


def try_io_uring() -> str | None:
    """Why io_uring cannot be used here, None when it was just used."""
    try:
        open_disk("io_uring").shutdown()
    except DiskEngineUnavailable as refusal:
        return str(refusal)
    return None


def space_of(path: str) -> tuple[int, int] | None:
    """(free, total) bytes of the file system that holds a path; None when there is no such path."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def device_number(path: str) -> str:
    """`MAJOR:MINOR` of the file system that holds a path."""
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def may_write(path: str) -> bool:
    """Whether this user may make files in a directory."""
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where facts come from. Tests give trees and functions of their own."""

    proc: str = "/proc"
    sys: str = "/sys"
    etc: str = "/etc"
    root: str = "/"
    """Where marks of containers lie."""
    space: Callable[[str], tuple[int, int] | None] = space_of
    device: Callable[[str], str] = device_number
    writable: Callable[[str], bool] = may_write
    refusal: Callable[[], str | None] = try_io_uring
    interpreter: Callable[[], tuple[str, bool]] = describe_interpreter


def read_facts(directory: str, sources: Sources | None = None) -> SystemFacts:
    """The machine, and the disk under a directory (or under the nearest one above it that exists).

    >>> read_facts("/").kernel_version > (0, 0)
    True
    """
    found = sources or Sources()
    proc, sys = found.proc, found.sys
    status, limits, meminfo = (read(f"{proc}/{name}") for name in ("self/status", "self/limits", "meminfo"))
    shm = found.space("/dev/shm")
    clock = f"{sys}/devices/system/clocksource/clocksource0"
    has_battery, on_battery = _battery(sys)
    interpreter, is_plain = found.interpreter()
    disabled = read(f"{proc}/sys/kernel/io_uring_disabled").strip()
    return SystemFacts(
        kernel=read(f"{proc}/sys/kernel/osrelease").strip(),
        interpreter=interpreter,
        interpreter_is_plain=is_plain,
        distribution=_distribution(read(f"{found.etc}/os-release")),
        cpu_model=field_of(read(f"{proc}/cpuinfo"), "model name"),
        in_container=_in_container(found),
        seccomp=field_of(status, "Seccomp") == "2",
        io_uring_disabled=disabled or None,
        io_uring_refusal=found.refusal(),
        memlock_bytes=limit_of(limits, "Max locked memory", hard=False),
        open_files_hard=limit_of(limits, "Max open files", hard=True),
        shm_free_bytes=shm[0] if shm else None,
        shm_total_bytes=shm[1] if shm else None,
        memory_total_bytes=kib_of(meminfo, "MemTotal"),
        memory_available_bytes=kib_of(meminfo, "MemAvailable"),
        cores=_cores(sys, number_list(field_of(status, "Cpus_allowed_list"))),
        cpu_quota=_quota(proc, sys),
        halt_poll_ns=_halt_poll_ns(sys),
        memory_monitors=_memory_monitors(sys),
        huge_pages=chosen(read(f"{sys}/kernel/mm/transparent_hugepage/enabled")),
        clock_source=read(f"{clock}/current_clocksource").strip(),
        clock_sources=choices(read(f"{clock}/available_clocksource")),
        has_battery=has_battery,
        on_battery=on_battery,
        storage=read_storage(directory, found),
    )


def read_storage(directory: str, sources: Sources | None = None) -> StorageFacts:
    """The disk under a directory, or under the nearest one above it that exists."""
    sources = sources or Sources()
    path = os.path.abspath(directory)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    path = os.path.realpath(path)
    number = sources.device(path)
    mount = mount_of(read_mounts(read(f"{sources.proc}/self/mountinfo")), path, number)
    block = _block_dir(sources.sys, mount.device if mount else number, mount.source if mount else "")
    queue = f"{block}/queue"
    rotational, fua, numa = (
        read(name).strip() for name in (f"{queue}/rotational", f"{queue}/fua", f"{block}/device/numa_node")
    )
    scheduler = read(f"{queue}/scheduler")
    space = sources.space(path)
    return StorageFacts(
        directory=directory,
        writable=sources.writable(path),
        file_system=mount.file_system if mount else "",
        mount_point=mount.mount_point if mount else "",
        mount_options=mount.options if mount else (),
        source=mount.source if mount else "",
        device=os.path.basename(block) if block else "",
        model=read(f"{block}/device/model").strip(),
        rotational=rotational == "1" if rotational else None,
        scheduler=chosen(scheduler),
        schedulers=choices(scheduler),
        write_cache=read(f"{queue}/write_cache").strip(),
        fua=fua == "1" if fua else None,
        free_bytes=space[0] if space else None,
        total_bytes=space[1] if space else None,
        numa_node=int(numa) if numa.isdigit() else None,
    )


def _block_dir(sys: str, number: str, source: str) -> str:
    """The directory of a block device: of the disk, when it is a partition; of what lies under it, when it is made of
    one other device (an encrypted or a logical volume). Empty when the file system is on none."""
    link = f"{sys}/dev/block/{number}"
    if not os.path.exists(link):
        link = f"{sys}/class/block/{os.path.basename(source)}"
        if not source.startswith("/dev/") or not os.path.exists(link):
            return ""
    block = os.path.realpath(link)
    while True:
        if os.path.exists(f"{block}/partition"):
            block = os.path.dirname(block)
        below = names(f"{block}/slaves")
        if len(below) != 1:
            return block
        block = os.path.realpath(f"{block}/slaves/{below[0]}")


def _cores(sys: str, allowed: list[int]) -> tuple[Core, ...]:
    numa_of = {
        number: int(name.removeprefix("node"))
        for name in names(f"{sys}/devices/system/node")
        if re.fullmatch(r"node\d+", name)
        for number in number_list(read(f"{sys}/devices/system/node/{name}/cpulist"))
    }
    cores = []
    for number in allowed:
        cpu = f"{sys}/devices/system/cpu/cpu{number}"
        package, physical = (
            read(f"{cpu}/topology/{name}").strip() for name in ("physical_package_id", "core_id")
        )
        cores.append(
            Core(
                number=number,
                package=int(package) if package.isdigit() else 0,
                physical=int(physical) if physical.isdigit() else number,
                numa_node=numa_of.get(number, 0),
                governor=read(f"{cpu}/cpufreq/scaling_governor").strip(),
            )
        )
    return tuple(cores)


def _halt_poll_ns(sys: str) -> int | None:
    if read(f"{sys}/devices/system/cpu/cpuidle/current_governor").strip() != "haltpoll":
        return None
    found = read(f"{sys}/module/haltpoll/parameters/guest_halt_poll_ns").strip()
    return int(found) if found.isdigit() else None


def _memory_monitors(sys: str) -> tuple[str, ...]:
    """Those that were set up by hand, and those of the kernel's own modules."""
    monitors = f"{sys}/kernel/mm/damon/admin/kdamonds"
    switches = [(f"{monitors}/{number}/state", "on") for number in names(monitors) if number.isdigit()]
    switches += [
        (f"{sys}/module/damon_{module}/parameters/enabled", "Y") for module in ("reclaim", "lru_sort", "stat")
    ]
    return tuple(f"/sys{path.removeprefix(sys)}" for path, on in switches if read(path).strip() == on)


def _quota(proc: str, sys: str) -> float | None:
    """The smallest quota of our control group and those above it (version 2)."""
    group = field_of(read(f"{proc}/self/cgroup").replace("::", ":"), "0")
    quotas = []
    while True:
        quota = cpu_quota(read(f"{sys}/fs/cgroup{group.rstrip('/')}/cpu.max"))
        if quota is not None:
            quotas.append(quota)
        if group in ("", "/"):
            return min(quotas, default=None)
        group = os.path.dirname(group)


def _battery(sys: str) -> tuple[bool, bool]:
    """(there is one, it is what we run on)."""
    supplies = f"{sys}/class/power_supply"
    states = [
        read(f"{supplies}/{name}/status").strip()
        for name in names(supplies)
        if read(f"{supplies}/{name}/type").strip() == "Battery"
        and read(f"{supplies}/{name}/scope").strip() != "Device"
    ]
    return bool(states), "Discharging" in states


def _in_container(sources: Sources) -> bool:
    marks = (".dockerenv", "run/.containerenv")
    return any(os.path.exists(os.path.join(sources.root, mark)) for mark in marks)


def _distribution(os_release: str) -> str:
    for line in os_release.splitlines():
        if line.startswith("ID="):
            return line[3:].strip('"')
    return ""


def names(path: str) -> list[str]:
    """The names in a directory; none where it is not."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def read(path: str) -> str:
    """The content of a file of the kernel; nothing where this kernel or container does not have it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
