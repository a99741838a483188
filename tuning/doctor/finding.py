"""What a check found: how it is, how it should be, what the difference costs, and the command that ends it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    SLOW = "slow"
    """It works, and costs speed."""
    BROKEN = "broken"
    """ringlog does not start, refuses records, or cannot keep what it promises."""


class KernelSetting(msgspec.Struct, frozen=True):
    """A file of the kernel, and the value that should be written to it."""

    path: str
    value: str

    @property
    def command(self) -> str:
        """For a shell with the right to do so.

        >>> KernelSetting("/sys/block/sda/queue/scheduler", "none").command
        'echo none > /sys/block/sda/queue/scheduler'
        """
        return f"echo {self.value} > {self.path}"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the doctor."""

    check: str
    level: Level
    found: str
    wanted: str
    cost: str = ""
    fix: str = ""
    """The exact command, or what to do where there is none."""
    settings: tuple[KernelSetting, ...] = ()
    """What `ringlog tune` may write, if it is allowed to, instead of the command."""


def worst(findings: Iterable[Finding]) -> Level:
    """The worst level of all.

    >>> worst([])
    <Level.OK: 'ok'>
    """
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)
