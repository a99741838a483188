"""A machine that is not there: trees that look like /proc, /sys and /etc, and what the kernel would answer."""

from __future__ import annotations

import os
from pathlib import Path

from tuning.doctor.facts import SystemFacts
from tuning.doctor.read_facts import Sources, read_facts

GIB = 1 << 30
MOUNTINFO = "26 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 524288               files
Max locked memory         8388608              8388608              bytes
"""


class FakeMachine:
    """A good server with 4 cores and an NVMe disk, which tests make worse."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.refusal: str | None = None
        self.interpreter = ("CPython 3.11.2", False)
        self.shm: tuple[int, int] | None = (16 * GIB, 16 * GIB)
        self.disk: tuple[int, int] = (500 * GIB, 1000 * GIB)
        self.device = "259:2"
        self.writable = True
        self.write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
        self.write("proc/sys/kernel/io_uring_disabled", "0\n")
        self.write("proc/self/status", "Name:\tpython\nSeccomp:\t0\nCpus_allowed_list:\t0-3\n")
        self.write("proc/self/limits", LIMITS)
        self.write("proc/self/mountinfo", MOUNTINFO)
        self.write("proc/self/cgroup", "0::/system.slice/ringlog.service\n")
        self.write("proc/meminfo", "MemTotal:       33554432 kB\nMemAvailable:   16777216 kB\n")
        self.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor\n")
        self.write("etc/os-release", 'NAME="Debian"\nID=debian\n')
        for cpu in range(4):
            self.cpu(cpu, package=0, core=cpu, governor="performance")
        self.write("sys/devices/system/node/node0/cpulist", "0-3\n")
        self.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
        self.clock("tsc", "tsc hpet acpi_pm")
        block = "sys/devices/pci/nvme/nvme0/nvme0n1"
        self.write(f"{block}/queue/rotational", "0\n")
        self.write(f"{block}/queue/scheduler", "[none] mq-deadline kyber bfq\n")
        self.write(f"{block}/queue/write_cache", "write back\n")
        self.write(f"{block}/queue/fua", "1\n")
        self.write(f"{block}/device/model", "A Fast Disk   \n")
        self.write(f"{block}/nvme0n1p2/partition", "2\n")
        self.link("sys/dev/block/259:2", f"{block}/nvme0n1p2")
        self.block = block

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()

    def link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(self.root / target, path.parent))

    def cpu(self, number: int, *, package: int, core: int, governor: str) -> None:
        cpu = f"sys/devices/system/cpu/cpu{number}"
        self.write(f"{cpu}/topology/physical_package_id", f"{package}\n")
        self.write(f"{cpu}/topology/core_id", f"{core}\n")
        self.write(f"{cpu}/cpufreq/scaling_governor", f"{governor}\n")

    def clock(self, current: str, available: str) -> None:
        clock = "sys/devices/system/clocksource/clocksource0"
        self.write(f"{clock}/current_clocksource", current + "\n")
        self.write(f"{clock}/available_clocksource", available + "\n")

    def mount(self, kind: str, options: str = "rw", *, source: str = "/dev/nvme0n1p2") -> None:
        self.write(
            "proc/self/mountinfo", f"26 1 259:2 / / rw,relatime shared:1 - {kind} {source} {options}\n"
        )

    @property
    def sources(self) -> Sources:
        return Sources(
            proc=str(self.root / "proc"),
            sys=str(self.root / "sys"),
            etc=str(self.root / "etc"),
            root=str(self.root),
            space=lambda path: self.shm if path == "/dev/shm" else self.disk,
            device=lambda path: self.device,
            writable=lambda path: self.writable,
            refusal=lambda: self.refusal,
            interpreter=lambda: self.interpreter,
        )

    def facts(self) -> SystemFacts:
        return read_facts("/data/ringlog", self.sources)
