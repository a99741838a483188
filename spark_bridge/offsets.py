"""Offsets as they stand in a checkpoint: JSON of topic, partition and the offset to read next, as in Kafka's source.

Beside the partitions stands the topic's id, so that a topic which was made anew is not taken for the old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringlog.errors import InvalidRequest
from ringlog.model import TopicPartition
from spark_bridge.options import Offsets

_ID = "id"


def to_json(offsets: Offsets, topic_ids: Mapping[str, int]) -> dict[str, Any]:
    """Sorted, so that equal offsets are equal texts: Spark compares those.

    >>> to_json({TopicPartition("b", 10): 7, TopicPartition("b", 2): 5}, {"b": 3})
    {'b': {'id': 3, '2': 5, '10': 7}}
    """
    found: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        found.setdefault(tp.topic, {_ID: topic_ids[tp.topic]})[str(tp.partition)] = offset
    return found


def from_json(given: Mapping[str, Any]) -> tuple[Offsets, dict[str, int]]:
    """What `to_json` made. InvalidRequest for the offsets of another source: those of Kafka's look alike, and mean
    other records.

    >>> from_json({"a": {"id": 3, "0": 1}})
    ({TopicPartition(topic='a', partition=0): 1}, {'a': 3})
    """
    for topic, partitions in given.items():
        if not isinstance(partitions, Mapping) or _ID not in partitions:
            raise InvalidRequest(
                f"the checkpoint is of another source: its offsets of '{topic}' do not say which topic that is. Start "
                "the query with a checkpoint of its own, and option 'startingOffsets'"
            )
    offsets = {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in given.items()
        for partition, offset in partitions.items()
        if partition != _ID
    }
    return offsets, {topic: partitions[_ID] for topic, partitions in given.items()}
