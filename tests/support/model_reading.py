"""A consumer that reads a model of a node from the beginning."""

from __future__ import annotations

from ringlog.client.consumer import Consumer
from ringlog.model import TopicPartition

TP = TopicPartition("t", 0)


def reading(*partitions, **settings) -> Consumer:
    consumer = Consumer(auto_offset_reset="earliest", **settings)
    consumer.assign(partitions or [TP])
    return consumer
