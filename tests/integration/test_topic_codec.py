"""`compression.type` of a topic on a node of real processes: what is kept is small, and readers see what was sent."""

from __future__ import annotations

import ringlog
from tests.support.patience import stretched

RECORDS = 2_000


def test_a_topic_has_its_codec_whatever_its_producers_use():
    values = [b"measurement %d of a sensor that says much the same" % number for number in range(RECORDS)]
    with (
        ringlog.embedded(shards=1) as node,
        ringlog.Admin(node.bootstrap) as admin,
        ringlog.Consumer(node.bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        kept_bytes = {}
        for word in ("producer", "zstd", "uncompressed"):
            admin.create_topic(word, 1, config={"compression.type": word})
            for codec in ("none", "gzip"):
                with ringlog.Producer(node.bootstrap, compression_type=codec) as producer:
                    producer.produce_many(word, values, partition=0).result(stretched(30))
            kept_bytes[word] = admin.describe_topic(word).partitions[0].bytes
            consumer.assign([(word, 0, 0)])
            found: list[bytes] = []
            while len(found) < 2 * RECORDS:
                found += [record.value for record in consumer.poll(timeout_ms=1000)]
            assert found == values * 2
        assert kept_bytes["zstd"] < kept_bytes["producer"] / 2 < kept_bytes["uncompressed"] / 2
