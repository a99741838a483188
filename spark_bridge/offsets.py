"""Offsets as they stand in a checkpoint: JSON of topic, partition and the offset to read next, as in Kafka's source."""

from __future__ import annotations

from typing import Any

from ringlog.model import TopicPartition
from spark_bridge.options import Offsets


def to_json(offsets: Offsets) -> dict[str, Any]:
    """Sorted, so that equal offsets are equal texts: Spark compares those.

    >>> to_json({TopicPartition("b", 10): 7, TopicPartition("b", 2): 5, TopicPartition("a", 0): 1})
    {'a': {'0': 1}, 'b': {'2': 5, '10': 7}}
    """
    found: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return found


def from_json(given: dict[str, Any]) -> Offsets:
    """What `to_json` made.

    >>> from_json({"a": {"0": 1}})
    {TopicPartition(topic='a', partition=0): 1}
    """
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in given.items()
        for partition, offset in partitions.items()
    }
