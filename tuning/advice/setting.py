"""What advice is made of: a policy, settings with reasons, changes of the system."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from ringlog.config import NodeConfig
from ringlog.limits import SEGMENT_BYTES_DEFAULT
from tuning.doctor.finding import KernelSetting

Value = int | bool | str
TOPIC_DEFAULTS = "topic_defaults"
"""The setting of a node that has defaults of topics."""
_OF_TOPICS: dict[str, Value] = {"segment.bytes": SEGMENT_BYTES_DEFAULT}
"""Settings of topics that are advised, with what holds when neither topic nor node says anything."""


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
    """One setting of a node, or a default that it has for topics, and why."""

    name: str
    value: Value
    reason: str

    @property
    def default(self) -> Value:
        """What a node does that is not told."""
        return default_of(self.name)

    @property
    def of_topics(self) -> bool:
        """It belongs into the node's defaults of topics.

        >>> Setting("segment.bytes", 1 << 26, "a small disk").of_topics, Setting("nets", 1, "enough").of_topics
        (True, False)
        """
        return self.name in _OF_TOPICS

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

    def over(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a node that had these before."""
        topics = {setting.name: setting.value for setting in self.settings if setting.of_topics}
        own = {setting.name: setting.value for setting in self.settings if not setting.of_topics}
        return {**before, **own, TOPIC_DEFAULTS: {**before.get(TOPIC_DEFAULTS, {}), **topics}}


def default_of(name: str) -> Value:
    """A setting's default, as the node has it.

    >>> default_of("shards"), default_of("pin"), default_of("segment.bytes")
    (0, True, 1073741824)
    """
    if name in _OF_TOPICS:
        return _OF_TOPICS[name]
    for field in msgspec.structs.fields(NodeConfig):
        if field.name == name:
            default = field.default
            assert isinstance(default, int | str)
            return default
    raise KeyError(f"a node has no setting {name!r}")
