"""More than the disk can take, sent without acks: the producer is held up, and nothing is dropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ringlog.client.consumer import Consumer
from ringlog.client.producer import Producer
from ringlog.limits import MIB
from tests.support.amounts import amount
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.trial import TOPIC, Trial

RECORD_BYTES = 1000


def test_all_that_was_sent_with_acks_0_arrives_when_nothing_dies(tmp_path: Path):
    total = amount(short=200, full=4000) * MIB // RECORD_BYTES
    chunk = np.full((4 * MIB // RECORD_BYTES, RECORD_BYTES), 7, np.uint8)
    # Little memory: the node is behind at once, and must say so.
    with Trial(tmp_path, shards=1, options=("--tail-bytes-per-shard", str(16 * MIB))) as trial:
        sent = 0
        with Producer(bootstrap=trial.node.bootstrap, acks=0) as producer:
            while sent < total:
                producer.produce_many(TOPIC, chunk)
                sent += len(chunk)
            producer.flush(stretched(60))
        places = [(TOPIC, partition) for partition in range(trial.partitions)]
        with Consumer(bootstrap=trial.node.bootstrap) as consumer:
            # The node has them; that readers see them waits for the disk.
            wait_for(
                f"{sent} records",
                lambda: sum(consumer.end_offsets(places).values()) == sent,
                within_s=stretched(60),
            )
