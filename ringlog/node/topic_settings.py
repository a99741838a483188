"""All settings of a topic, and where each comes from: the topic, the node's configuration, or a default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from ringlog.config import NodeConfig
from ringlog.controller.topic_config import SETTINGS, with_defaults
from ringlog.limits import SEGMENT_BYTES_DEFAULT
from ringlog.net.messages import CreateTopicRequest


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


def with_segment_bytes(config: NodeConfig, request: CreateTopicRequest) -> CreateTopicRequest:
    """A topic keeps the size that was the node's default when it was made, as if it had been asked for; unless the
    defaults of topics have one, which counts."""
    size = config.default_segment_bytes
    if size == SEGMENT_BYTES_DEFAULT or "segment.bytes" in config.topic_defaults:
        return request
    return msgspec.structs.replace(request, config={"segment.bytes": str(size), **request.config})
