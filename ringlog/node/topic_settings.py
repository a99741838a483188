"""All settings of a topic, and where each comes from: the topic, the node's configuration, or a default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringlog.controller.topic_config import SETTINGS, with_defaults


class EffectiveSetting(NamedTuple):
    """The value that holds, and its source."""

    value: str
    source: str


def effective_settings(config: Mapping[str, str], node: Mapping[str, str]) -> dict[str, EffectiveSetting]:
    """What holds for a topic with this config, on a node with these defaults.

    >>> found = effective_settings({"flush": "os"}, {"flush": "ack", "retention.ms": "60000"})
    >>> found["flush"], found["retention.ms"].source, found["segment.ms"].source
    (EffectiveSetting(value='os', source='topic'), 'node', 'default')
    """
    full = with_defaults(config, node)
    return {
        name: EffectiveSetting(
            full[name], "topic" if name in config else "node" if name in node else "default"
        )
        for name in SETTINGS
    }
