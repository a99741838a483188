"""All settings of a topic, and where each comes from: the topic, or this version's default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringlog.controller.topic_config import SETTINGS, with_defaults


class EffectiveSetting(NamedTuple):
    """The value that holds, and its source."""

    value: str
    source: str


def effective_settings(config: Mapping[str, str]) -> dict[str, EffectiveSetting]:
    """What holds for a topic with this config.

    >>> effective_settings({"flush": "os"})["flush"], effective_settings({})["flush"].source
    (EffectiveSetting(value='os', source='topic'), 'default')
    """
    full = with_defaults(config)
    return {name: EffectiveSetting(full[name], "topic" if name in config else "default") for name in SETTINGS}
