"""What advice is made of: a policy, settings with reasons, changes of the system."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ringlog.config import NodeConfig
from tuning.doctor.finding import KernelSetting

Value = int | bool | str


class Policy(StrEnum):
    """What an idle core is for."""

    BALANCED = "balanced"
    """Fast, and asleep when there is nothing to do."""
    LATENCY = "latency"
    """Cores spin rather than sleep, and groups are small."""
    THROUGHPUT = "throughput"
    """All cores work; groups and buffers are large."""
    LAPTOP = "laptop"
    """Few processes, little memory, no core kept awake."""


class Setting(msgspec.Struct, frozen=True):
    """One setting of a node, and why."""

    name: str
    value: Value
    reason: str

    @property
    def default(self) -> Value:
        """What a node does that is not told."""
        return default_of(self.name)

    @property
    def changes(self) -> bool:
        return self.value != self.default


class SystemChange(msgspec.Struct, frozen=True):
    """A value of the kernel that costs ringlog speed, and what it should be."""

    setting: KernelSetting
    check: str
    reason: str


class Advice(msgspec.Struct, frozen=True):
    """All that is advised for one machine."""

    policy: Policy
    settings: tuple[Setting, ...]
    notes: tuple[str, ...]
    """What was measured, and needs no setting."""
    system: tuple[SystemChange, ...]

    @property
    def values(self) -> dict[str, Value]:
        return {setting.name: setting.value for setting in self.settings}


def default_of(name: str) -> Value:
    """A setting's default, as the node has it.

    >>> default_of("shards"), default_of("pin")
    (0, True)
    """
    for field in msgspec.structs.fields(NodeConfig):
        if field.name == name:
            default = field.default
            assert isinstance(default, int | str)
            return default
    raise KeyError(f"a node has no setting {name!r}")
