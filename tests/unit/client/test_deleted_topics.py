"""A producer whose topic another client deletes: its records fail soon, and it does not undo the deletion."""

from __future__ import annotations

import time

import pytest

from ringlog.errors import (
    InvalidRequest,
    StaleMetadata,
    UnknownTopic,
)
from ringlog.net.framing import Api
from ringlog.records.partitioner import partition_for
from tests.support.patience import stretched


def delete(node, topic):
    """The node forgets a topic, as the deletion by another client would make it."""
    gone = {place.partition for place in node.topics.pop(topic).partitions}

    def refuse(header, body):
        if header.api_key == Api.PRODUCE and header.partition in gone:
            raise StaleMetadata("there is no such partition")

    node.before = refuse


def test_records_for_a_topic_that_was_deleted_fail_long_before_they_are_late(node, producer):
    producer.produce("t", b"before").result(5)
    delete(node, "t")
    began = time.monotonic()
    with pytest.raises(UnknownTopic, match="topic 't' was deleted while records were on their way"):
        producer.produce("t", b"after").result(60)
    assert time.monotonic() - began < stretched(5.0)
    with pytest.raises(UnknownTopic, match="ringlog topic create t"):
        producer.produce("t", b"later")
    assert "t" not in node.topics, "a producer does not undo a deletion"
    node.create("filler")  # so that the new one has other partitions
    node.create("t")
    assert producer.produce("t", b"again").result(5).offset == 0


def test_other_topics_go_on_when_one_was_deleted(node, producer):
    producer.produce("t", b"t").result(5)
    producer.produce("other", b"1").result(5)
    delete(node, "t")
    lost = producer.produce("t", b"t")
    kept = [producer.produce("other", b"2") for _ in range(100)]
    assert isinstance(lost.exception(60), UnknownTopic)
    producer.flush(10)
    assert all(future.done() and future.exception(0) is None for future in kept)


def test_a_topic_that_was_made_anew_with_fewer_partitions_is_written_to(node, producer):
    for partition in range(4):
        producer.produce("t", b"old", partition=partition).result(5)
    delete(node, "t")
    node.create("filler")
    node.create("t", 2)
    lost = producer.produce("t", b"to a partition that is no more", partition=3)
    with pytest.raises(UnknownTopic, match="was made anew with partitions 0 to 1"):
        lost.result(30)
    new = [producer.produce("t", b"new", key=b"%d" % i) for i in range(40)]
    assert [future.result(10).partition for future in new] == [partition_for(b"%d" % i, 2) for i in range(40)]
    spread = producer.produce_many("t", [b"new"] * 40, keys=[b"%d" % i for i in range(40)])
    assert sum(part.count for part in spread.result(10)) == 40
    with pytest.raises(InvalidRequest, match="0 to 1"):
        producer.produce("t", b"v", partition=3)
