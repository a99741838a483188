"""Facts about the machine that figures depend on, read from /proc and /sys."""

from __future__ import annotations

import os
import platform

import msgspec

from tuning.doctor.read_facts import read, read_storage


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
        cpu=_cpu_model(read("/proc/cpuinfo")),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        load_1_min=round(os.getloadavg()[0], 2),
        storage=_storage(directory),
    )


def is_nvme(directory: str) -> bool:
    """Whether a directory's bytes end up on an NVMe device, as far as the kernel tells."""
    return read_storage(directory).device.startswith("nvme")


def _storage(directory: str) -> Storage:
    found = read_storage(directory)
    return Storage(
        file_system=found.file_system or "unknown",
        mount_options=",".join(found.mount_options),
        device=found.source or "unknown",
        model=found.model or found.device,
        write_cache=found.write_cache or "unknown",
    )


def _cpu_model(cpuinfo: str) -> str:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()
