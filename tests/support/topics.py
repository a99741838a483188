"""Reads whole topics, for tests that count and compare."""

from __future__ import annotations

import pyarrow as pa

from ringlog.client.consumer import Consumer


def read_topic(bootstrap: str, topic: str) -> pa.Table:
    """Everything that a topic has now, as one table with the columns of `poll_arrow`."""
    from ringlog.client.arrow import SCHEMA

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        places = [(topic, index) for index in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        batches = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            batch = consumer.poll_arrow(timeout_ms=200)
            if batch is not None:
                batches.append(batch)
    return pa.Table.from_batches(batches, schema=SCHEMA)
