"""What is known of a machine before anything is measured: all that checks and advice look at."""

from __future__ import annotations

import msgspec


class StorageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bytes of a directory end up. Empty text, or None: this kernel or container does not tell."""

    directory: str
    writable: bool | None = None
    """Whether this user may write there, or make it; None: an earlier version did not ask."""
    file_system: str = ""
    mount_point: str = ""
    mount_options: tuple[str, ...] = ()
    source: str = ""
    device: str = ""
    """The block device, a partition's parent: `nvme0n1`."""
    model: str = ""
    rotational: bool | None = None
    scheduler: str = ""
    """The one that is chosen."""
    schedulers: tuple[str, ...] = ()
    write_cache: str = ""
    """`write back` needs a flush for each durable write; `write through` does not."""
    fua: bool | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    numa_node: int | None = None
    """Of the device."""


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """A logical CPU that we may use."""

    number: int
    package: int = 0
    physical: int = 0
    """Of its package: those with the same number share one core's execution units."""
    numa_node: int = 0
    governor: str = ""


class SystemFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, as /proc and /sys show it."""

    kernel: str
    interpreter: str = ""
    interpreter_is_plain: bool = False
    """It was built without optimisation by profile."""
    distribution: str = ""
    """ID of os-release(5): debian, ubuntu, fedora, …"""
    cpu_model: str = ""
    in_container: bool = False
    seccomp: bool = False
    """A filter decides about our system calls."""
    io_uring_disabled: str | None = None
    """kernel.io_uring_disabled; None: the kernel has no such switch."""
    io_uring_refusal: str | None = None
    """Why a ring could not be used, None when one was."""
    memlock_bytes: int | None = None
    """The soft limit; None: no limit."""
    open_files_hard: int | None = None
    shm_free_bytes: int | None = None
    shm_total_bytes: int | None = None
    memory_total_bytes: int = 0
    memory_available_bytes: int = 0
    cores: tuple[Core, ...] = ()
    cpu_quota: float | None = None
    """Cores' worth of time that the control group may use; None: no limit."""
    halt_poll_ns: int | None = None
    """How long an idle core of this virtual machine looks for work before it gives itself up to the host. None: this is
    no virtual machine, or its kernel leaves that to the host."""
    memory_monitors: tuple[str, ...] = ()
    """The switches of threads of the kernel (DAMON) that look, now, which memory is in use."""
    huge_pages: str = ""
    """Of transparent huge pages, the mode that is chosen."""
    clock_source: str = ""
    clock_sources: tuple[str, ...] = ()
    on_battery: bool = False
    has_battery: bool = False
    storage: StorageFacts

    @property
    def kernel_version(self) -> tuple[int, int]:
        """Its first two numbers.

        >>> SystemFacts(kernel="6.1.0-13-amd64", storage=StorageFacts(directory="/")).kernel_version
        (6, 1)
        """
        numbers = self.kernel.split("-")[0].split(".")
        return (_number(numbers[0]), _number(numbers[1]) if len(numbers) > 1 else 0)

    @property
    def usable_cores(self) -> int:
        """Cores that we may be on, and are given time for."""
        count = max(1, len(self.cores))
        return count if self.cpu_quota is None else max(1, min(count, int(self.cpu_quota)))

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        return tuple(sorted({core.numa_node for core in self.cores}))


def _number(text: str) -> int:
    digits = "".join(character for character in text if character.isdigit())
    return int(digits) if digits else 0
