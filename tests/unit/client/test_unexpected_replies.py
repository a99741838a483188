"""Replies that a node should never send: each fails its own request, and the client's I/O thread lives."""

from __future__ import annotations

import threading

import pytest

from ringlog import Consumer, Producer
from ringlog.errors import CorruptFrame, DeliveryTimeout, RinglogError
from ringlog.limits import OFFSETS_PARTITIONS
from ringlog.net import messages
from ringlog.net.framing import Api
from ringlog.net.group_messages import OFFSETS_TOPIC, OffsetCommitReply, OffsetFetchReply
from ringlog.net.messages import PartitionMetadata, TopicMetadata, encode_body
from tests.support.node import wait_for
from tests.support.router import RouterNode


@pytest.fixture
def node():
    with RouterNode() as made:
        made.create("t", 2)
        made.create(OFFSETS_TOPIC, OFFSETS_PARTITIONS)
        yield made


@pytest.fixture
def consumer(node):
    made = Consumer(
        bootstrap=node.bootstrap, group_id="g", enable_auto_commit=False, default_api_timeout_ms=5_000
    )
    yield made
    made._connection.check_runs()
    made.close()


def answer(node, api: Api | None = None, body: bytes = b"") -> None:
    """Let requests of one api be answered so, and all others well."""

    def before(header, _) -> bytes | None:
        if header.api_key == api:
            return body
        return encode_body(OffsetCommitReply([0])) if header.api_key == Api.OFFSET_COMMIT else None

    node.before = before


def raw_metadata(topic: TopicMetadata) -> bytes:
    """What a node that is out of its mind says of a topic; its own types do not hold it back."""
    return encode_body(messages.MetadataReply("test", 0, 1, [], "elsewhere", 1 << 23, [topic], {}))


@pytest.mark.parametrize("errors", [[], [0, 0], [0] * 100])
def test_a_commit_with_another_number_of_rows_fails_alone(node, consumer, errors):
    answer(node, Api.OFFSET_COMMIT, encode_body(OffsetCommitReply(errors)))
    told: list[RinglogError | None] = []
    done = threading.Event()

    def callback(offsets, error) -> None:
        told.append(error)
        done.set()

    consumer.commit_async({("t", 0): 5}, callback)
    assert done.wait(5)
    assert isinstance(told[0], CorruptFrame)
    with pytest.raises(CorruptFrame, match="rows"):
        consumer.commit({("t", 0): 5})
    answer(node)
    consumer.commit({("t", 0): 5})


def test_committed_offsets_of_other_partitions_are_no_answer(node, consumer):
    answer(node, Api.OFFSET_FETCH, encode_body(OffsetFetchReply([])))
    with pytest.raises(CorruptFrame, match="rows"):
        consumer.committed(("t", 0))


@pytest.mark.parametrize("api", [Api.OFFSET_COMMIT, Api.METADATA, Api.INIT_PRODUCER, Api.PRODUCE])
@pytest.mark.parametrize("body", [b"\xc1", b"\x90", b"\x00" * 7, b"\xff" * 64])
def test_bytes_that_are_no_reply_fail_their_request(node, api, body):
    with Consumer(bootstrap=node.bootstrap, group_id="g", default_api_timeout_ms=300) as reader:
        with Producer(
            node.bootstrap, delivery_timeout_ms=500, request_timeout_ms=300, max_block_ms=300
        ) as producer:
            producer.produce("t", b"first").result(5)
            answer(node)
            reader.commit({("t", 0): 5})
            answer(node, api, body)
            reader.commit_async({("t", 0): 5})
            producer._connection.look_again("t")
            producer.produce("t", b"v").exception(10)
            answer(node)
            wait_for("a record that stands", lambda: producer.produce("t", b"w").exception(10) is None, 20)
        reader._connection.check_runs()


@pytest.mark.parametrize(
    "places",
    [
        [],
        [PartitionMetadata(1, 101, 0, 0)],
        [PartitionMetadata(0, 100, 0, 0), PartitionMetadata(0, 101, 0, 0)],
        [PartitionMetadata(0, 100, 0, 0), PartitionMetadata(7, 101, 0, 0)],
        [PartitionMetadata(-1, 100, 0, 0), PartitionMetadata(0, 101, 0, 0)],
        [PartitionMetadata(0, 2**40, 0, 0), PartitionMetadata(1, -1, 0, 0)],
    ],
    ids=["none", "not from 0 on", "one twice", "a gap", "below 0", "no ids of partitions"],
)
def test_a_topic_without_its_partitions_is_not_believed(node, places):
    with Producer(node.bootstrap, metadata_max_age_ms=50) as producer:
        producer.produce("t", b"first").result(5)
        asked = len(node.seen)
        answer(node, Api.METADATA, raw_metadata(TopicMetadata("t", "", 100, places, {})))

        def asked_again() -> bool:
            producer._connection.wake()  # a producer that does nothing asks nothing
            return sum(header.api_key == Api.METADATA for header in node.seen[asked:]) > 1

        wait_for("questions about the topic", asked_again, 20)
        for partition in (0, 1):
            assert producer.produce("t", b"v", partition=partition).result(10).partition == partition


@pytest.mark.parametrize(("number", "epoch"), [(2**63, 0), (-1, 0), (5, 2**15), (5, -1)])
def test_a_producer_id_that_no_batch_can_carry_is_not_taken(node, number, epoch):
    answer(node, Api.INIT_PRODUCER, encode_body(messages.InitProducerReply(number, epoch)))
    with Producer(node.bootstrap, delivery_timeout_ms=500) as producer:
        with pytest.raises(DeliveryTimeout):
            producer.produce("t", b"v").result(10)
        answer(node)
        assert producer.produce("t", b"w").result(10).durability == "flushed"
