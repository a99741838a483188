"""All checks, in the order in which they are shown. Pure."""

from __future__ import annotations

from collections.abc import Callable

from tuning.doctor.check_kernel import (
    check_io_uring,
    check_memlock,
    check_open_files,
    check_shared_memory,
    check_version,
)
from tuning.doctor.check_machine import (
    check_clock,
    check_cores,
    check_governor,
    check_huge_pages,
    check_idle_cores,
    check_interpreter,
    check_memory_monitor,
    check_numa,
)
from tuning.doctor.check_storage import (
    check_data_directory,
    check_device,
    check_file_system,
    check_mount,
    check_scheduler,
    check_space,
    check_write_cache,
)
from tuning.doctor.facts import SystemFacts
from tuning.doctor.finding import Finding

CHECKS: tuple[Callable[[SystemFacts], Finding], ...] = (
    check_version,
    check_io_uring,
    check_memlock,
    check_open_files,
    check_shared_memory,
    check_cores,
    check_governor,
    check_idle_cores,
    check_memory_monitor,
    check_huge_pages,
    check_numa,
    check_clock,
    check_interpreter,
    check_data_directory,
    check_file_system,
    check_mount,
    check_device,
    check_write_cache,
    check_scheduler,
    check_space,
)


def diagnose(facts: SystemFacts) -> list[Finding]:
    """What every check says of a machine."""
    return [check(facts) for check in CHECKS]
