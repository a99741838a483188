"""Facts about the machine that figures depend on, read from /proc and /sys."""

from __future__ import annotations

import os
import platform

import msgspec


class Storage(msgspec.Struct, frozen=True):
    """Where a directory's bytes end up."""

    file_system: str
    mount_options: str
    device: str
    model: str
    write_cache: str
    """`write back` needs a flush for each durable write; `write through` does not."""

    @property
    def is_memory(self) -> bool:
        """Nothing here survives power loss, whatever a flush says, and no figure means anything."""
        return self.file_system in ("tmpfs", "ramfs")


class Machine(msgspec.Struct, frozen=True):
    """The machine during one run."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    load_1_min: float
    """Runnable processes when the run began. Above zero, others were working here too."""
    storage: Storage


def describe(directory: str) -> Machine:
    """The machine, and the disk under a directory.

    >>> describe("/").cores > 0
    True
    """
    return Machine(
        cpu=_cpu_model(_read("/proc/cpuinfo")),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        load_1_min=round(os.getloadavg()[0], 2),
        storage=_storage(directory),
    )


def is_nvme(directory: str) -> bool:
    """Whether a directory's bytes end up on an NVMe device, as far as the kernel tells."""
    number = os.stat(directory).st_dev
    block = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return os.path.basename(block).startswith("nvme")


def mount_of(mountinfo: str, device: str) -> tuple[str, str, str]:
    """(file system, source, options) of the mount with a device number, from the text of /proc/self/mountinfo.

    >>> line = "26 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw,discard"
    >>> mount_of(line, "259:1")
    ('ext4', '/dev/nvme0n1p1', 'rw,relatime,rw,discard')
    >>> mount_of(line, "0:5")
    ('unknown', 'unknown', '')
    """
    for line in mountinfo.splitlines():
        mounted, _, about = line.partition(" - ")
        fields, kind = mounted.split(" "), about.split(" ")
        if len(fields) > 5 and fields[2] == device and len(kind) > 2:
            return kind[0], kind[1], f"{fields[5]},{kind[2]}"
    return "unknown", "unknown", ""


def _storage(directory: str) -> Storage:
    number = os.stat(directory).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    file_system, source, options = mount_of(_read("/proc/self/mountinfo"), device)
    block = os.path.realpath(f"/sys/dev/block/{device}")
    if os.path.exists(f"{block}/partition"):
        block = os.path.dirname(block)
    return Storage(
        file_system=file_system,
        mount_options=options,
        device=source,
        model=_read(f"{block}/device/model").strip() or os.path.basename(block),
        write_cache=_read(f"{block}/queue/write_cache").strip() or "unknown",
    )


def _cpu_model(cpuinfo: str) -> str:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def _read(path: str) -> str:
    """The content of a file of the kernel; nothing where this kernel or container does not have it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
