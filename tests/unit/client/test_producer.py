"""The producer against a ROUTER in a thread: records in, futures out, and what happens when the node does not."""

from __future__ import annotations

import gc
import os
import pickle
import re
import subprocess
import sys
import threading
import time

import pytest

from ringlog import Producer
from ringlog.client.metadata import topic_error
from ringlog.errors import (
    BatchTooLarge,
    BufferFull,
    ClientClosed,
    DiskFull,
    InvalidRequest,
    RequestTimeout,
)
from ringlog.net.framing import Acks, Api
from ringlog.net.messages import PartitionMetadata, TopicMetadata
from ringlog.records.partitioner import partition_for
from tests.support.patience import stretched
from tests.support.router import records, values


def test_a_record_comes_back_with_its_place(node, producer):
    stood = producer.produce("t", b"v", key=b"k", headers={"h": b"1"}, timestamp=17).result(5)
    assert stood._replace(partition=0) == ("t", 0, 0, 17, "flushed")
    (record,) = records(node)[stood.partition]
    assert (record.key, record.value, record.timestamp, record.headers) == (b"k", b"v", 17, [("h", b"1")])


def test_text_is_sent_as_utf_8_and_headers_may_be_a_list(node, producer):
    producer.produce("t", "é", key="k", headers=[("a", "x"), ("a", None)]).result(5)
    (record,) = [one for some in records(node).values() for one in some]
    assert (record.value, record.headers) == ("é".encode(), [("a", b"x"), ("a", None)])


def test_text_that_utf_8_has_no_form_for_is_refused(producer):
    for wrong in (
        {"value": "\ud800"},
        {"value": b"", "key": "\ud800"},
        {"value": b"", "headers": {"\ud800": b""}},
    ):
        with pytest.raises(InvalidRequest, match="surrogates"):
            producer.produce("t", **wrong)
    for columns in ({"values": ["\ud800"]}, {"values": [b""], "keys": ["\ud800"]}):
        with pytest.raises(InvalidRequest, match="surrogates"):
            producer.produce_many("t", **columns)


def test_a_producer_says_what_holds_its_records_up_until_nothing_does(node, producer):
    def refuse(header, body):
        if header.api_key == Api.PRODUCE:
            raise DiskFull("there is no room")

    assert producer.held_up_by() is None
    node.before = refuse
    futures = [producer.produce("t", b"v", key=b"%d" % number) for number in range(20)]
    within_s = time.monotonic() + stretched(10)
    while producer.held_up_by() is None:
        assert time.monotonic() < within_s
        time.sleep(0.01)
    assert isinstance(producer.held_up_by(), DiskFull)
    node.before = lambda header, body: None
    for future in futures:
        future.result(stretched(10))
    assert producer.held_up_by() is None


def test_a_key_decides_the_partition_as_kafka_does(node, producer):
    for i in range(50):
        key = b"key-%d" % i
        assert producer.produce("t", b"v", key=key).result(5).partition == partition_for(key, 4)


def test_a_named_partition_is_used_and_a_wrong_one_refused(producer):
    assert producer.produce("t", b"v", partition=2).result(5).partition == 2
    with pytest.raises(InvalidRequest, match="0 to 3"):
        producer.produce("t", b"v", partition=4)


@pytest.mark.parametrize("many", [False, True])
def test_a_partition_that_was_just_added_can_be_named(node, producer, many):
    producer.produce("t", b"v").result(5)
    place = PartitionMetadata(4, node.topics["t"].partitions[0].partition + 4, 0, 0)
    node.topics["t"].partitions.append(place)
    if many:
        assert producer.produce_many("t", [b"v"], partition=4).result(5)[0].partition == 4
    else:
        assert producer.produce("t", b"v", partition=4).result(5).partition == 4
    with pytest.raises(InvalidRequest, match="0 to 4"):
        producer.produce("t", b"v", partition=5)


def test_records_of_a_partition_keep_their_order_and_their_offsets(node, producer):
    futures = [producer.produce("t", b"%d" % i, partition=1) for i in range(20_000)]
    producer.flush(20)
    assert [future.result(0).offset for future in futures] == list(range(20_000))
    assert [record.value for record in records(node)[1]] == [b"%d" % i for i in range(20_000)]


def test_records_without_a_key_are_spread_over_partitions(node):
    with Producer(node.bootstrap, batch_size=1024) as producer:
        for _ in range(500):
            producer.produce("t", b"x" * 100)
    assert set(records(node)) == {0, 1, 2, 3}


def test_a_lost_node_costs_nothing_and_doubles_nothing(node):
    with Producer(node.bootstrap, batch_size=2048) as producer:
        futures = []
        for i in range(3000):
            futures.append(producer.produce("t", b"%d" % i + b"." * 50, partition=0))
            if i in (500, 1500, 2500):
                node.restart()
        producer.flush(30)
    assert [future.result(0).offset for future in futures] == list(range(3000))
    assert len(values(node)) == 3000


def test_an_error_carries_its_advice_apart_and_survives_pickling(producer):
    with pytest.raises(BatchTooLarge) as caught:
        producer.produce_many("t", [b"x" * (9 << 20)])
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert error.advice == "Set compression_type, or send it in parts"
        assert error.compression_helps
        assert str(error) == f"{error.what}. {error.advice}"


def test_what_is_wrong_is_named(producer):
    with pytest.raises(TypeError, match="value must be"):
        producer.produce("t", 17)
    with pytest.raises(TypeError, match="key must be"):
        producer.produce("t", b"v", key=1.5, partition=0)
    with pytest.raises(TypeError, match="headers"):
        producer.produce("t", b"v", headers=17)
    with pytest.raises(InvalidRequest, match="timestamp"):
        producer.produce("t", b"v", timestamp=-5)
    with pytest.raises(BatchTooLarge):
        producer.produce("t", bytes(9 << 20))
    with pytest.raises(BatchTooLarge, match="compression_type"):
        producer.produce_many("t", [bytes(9 << 20)])
    with pytest.raises(InvalidRequest, match="acks"):
        producer.produce("t", b"v", acks=7)
    assert producer.produce("t", b"v").result(5).durability == "flushed"


def test_acks_0_promises_nothing(node, producer):
    stood = producer.produce("t", b"v", acks=0).result(5)
    assert (stood.offset, stood.durability) == (-1, "none")
    assert producer.produce("t", b"w", acks=1).result(5).offset >= 0
    flags = [header.flags & 3 for header in node.seen if header.api_key == Api.PRODUCE]
    assert flags == [Acks.RECEIVED, Acks.LEADER], "the node says when there is room for more"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(node, codec):
    with Producer(node.bootstrap, compression_type=codec, linger_ms=5) as producer:
        for _ in range(1000):
            producer.produce("t", b"x" * 100, partition=0)
        producer.produce_many("t", [b"x" * 100] * 1000, partition=0)
    assert values(node) == [b"x" * 100] * 2000
    assert sum(len(batch) for batch in node.logs[100].batches) < 50_000


def test_a_full_buffer_blocks_and_then_says_so(node):
    node.create("t", 1)
    with Producer(
        node.bootstrap, batch_size=1024, buffer_memory=4096, max_block_ms=200, delivery_timeout_ms=3000
    ) as producer:
        producer.produce("t", b"first").result(5)
        node.before = lambda header, body: b"" if header.api_key == Api.PRODUCE else None
        with pytest.raises(BufferFull, match="buffer_memory"):
            for _ in range(100):
                producer.produce("t", b"x" * 500)
        node.before = lambda header, body: None
        node.restart()
    assert len(values(node)) > 1


def test_flush_says_when_not_all_is_done_and_close_fails_the_rest(node):
    producer = Producer(node.bootstrap)
    producer.produce("t", b"first").result(5)
    node.before = lambda header, body: b"" if header.api_key == Api.PRODUCE else None
    future = producer.produce("t", b"v")
    with pytest.raises(RequestTimeout):
        producer.flush(0.2)
    with pytest.raises(RequestTimeout):
        future.result(0.01)
    with pytest.raises(RequestTimeout):
        producer.close(0.1)
    assert isinstance(future.exception(0), ClientClosed)
    with pytest.raises(ClientClosed):
        producer.produce("t", b"v")


def test_a_closed_producer_says_so_and_takes_nothing(node, producer):
    producer.produce("t", b"v").result(5)
    producer.close()
    with pytest.raises(ClientClosed):
        producer.produce("t", b"v")
    with pytest.raises(ClientClosed):
        producer.produce_many("t", [b"v"])
    assert len(values(node)) == 1


@pytest.mark.parametrize("form", ["one", "few", "many"])
def test_a_record_that_another_thread_closes_on_does_not_wait_forever(node, producer, monkeypatch, form):
    """The other thread is done with closing just before the record is added."""
    producer.produce("t", b"v", partition=0).result(5)
    accumulator = producer._accumulator
    name = {"one": "append", "few": "extend", "many": "put"}[form]
    add = getattr(accumulator, name)

    def add_late(*args):
        monkeypatch.undo()
        producer.close()
        return add(*args)

    monkeypatch.setattr(accumulator, name, add_late)
    with pytest.raises(ClientClosed):
        if form == "one":
            producer.produce("t", b"v", partition=0)
        else:
            producer.produce_many("t", [b"v" * 100_000] * (1 if form == "few" else 20), partition=0)
    assert not accumulator.unfinished


def test_a_name_that_no_topic_can_have_is_refused_with_the_rule():
    error = topic_error(TopicMetadata("no name", InvalidRequest.code, -1, [], {}))
    assert isinstance(error, InvalidRequest)
    assert "a-z A-Z 0-9" in str(error)


def test_callbacks_are_called_once_each_with_their_future(producer):
    seen = []
    futures = [producer.produce("t", b"%d" % i, on_delivery=seen.append) for i in range(100)]
    producer.flush(5)
    assert sorted(map(id, seen)) == sorted(map(id, futures))
    late = []
    futures[0].add_done_callback(late.append)
    assert late == [futures[0]]


def test_a_callback_that_fails_hurts_nobody(producer, monkeypatch):
    told = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    producer.produce("t", b"v", on_delivery=lambda future: 1 / 0)
    assert producer.produce("t", b"w").result(5).durability == "flushed"
    producer.flush(5)
    assert [args.exc_type for args in told] == [ZeroDivisionError]


def test_many_threads_may_produce(node, producer):
    def work(name):
        for i in range(2000):
            producer.produce("t", b"%d %d" % (name, i), partition=0)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(20)
    assert len(set(values(node))) == 8000
    for name in range(4):
        mine = [one for one in values(node) if one.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, i) for i in range(2000)]


def test_a_producer_that_nobody_holds_leaves_no_thread(node):
    producer = Producer(node.bootstrap)
    producer.produce("t", b"v").result(5)
    del producer
    gc.collect()
    assert not [one for one in threading.enumerate() if one.name.startswith("ringlog-client")]


PROGRAM = """
import sys
from ringlog import Producer
from ringlog.client import last_words
last_words.LAST_FLUSH_S = float(sys.argv[2])
producer = Producer(sys.argv[1], linger_ms=60_000)
producer.produce("t", b"last words")
"""


def test_a_program_that_ends_without_a_close_loses_nothing(node):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, node.bootstrap, "60"], capture_output=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert values(node) == [b"last words"]


def test_a_program_that_ends_without_a_close_is_told_what_it_may_lose(node):
    node.create("t")
    node.before = lambda header, body: b"" if header.api_key == Api.PRODUCE else None
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, node.bootstrap, "0.1"], capture_output=True, timeout=120
    )
    assert b"records may be lost" in done.stderr


def test_futures_of_a_producer_that_nobody_holds_fail_and_do_not_wait_forever(node, caplog):
    producer = Producer(node.bootstrap, linger_ms=60_000)
    producer.produce("t", b"v", partition=0)
    node.before = lambda header, body: b"" if header.api_key == Api.PRODUCE else None
    futures = [producer.produce("t", b"v", partition=i) for i in range(4)]
    del producer
    gc.collect()
    assert {type(future.exception(5)) for future in futures} == {ClientClosed}
    assert "records may be lost" in caplog.text  # who sends and forgets looks at no future


def test_a_producer_that_was_flushed_goes_without_a_word(node, caplog):
    producer = Producer(node.bootstrap)
    producer.produce("t", b"v")
    producer.flush(5)
    del producer
    gc.collect()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"key": 5}, "key must be bytes, str or None, not int"),
        ({"timestamp": 2**70}, "milliseconds of 63 bits"),
        ({"on_delivery": 5}, "on_delivery must be a function of the future, not int"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(node, producer, wrong, said):
    with pytest.raises((TypeError, InvalidRequest), match=said):
        producer.produce("t", b"v", **wrong)


def test_a_callback_may_produce_but_not_wait(node, producer):
    seen = []

    def on_delivery(future):
        seen.append(producer.produce("t", b"again"))
        for wait in (producer.flush, lambda: producer.produce("unknown", b"v")):
            try:
                wait()
            except InvalidRequest as refused:
                seen.append(str(refused))

    producer.produce("t", b"v", on_delivery=on_delivery).result(5)
    until_s = time.monotonic() + 5
    while len(seen) < 3 and time.monotonic() < until_s:
        time.sleep(0.01)
    assert seen[0].result(5).durability == "flushed"
    assert ["may not wait" in text for text in seen[1:]] == [True, True]


def test_a_child_of_a_fork_can_produce(node, producer):
    producer.produce("t", b"parent").result(5)
    pid = os.fork()
    if pid == 0:
        try:
            producer.produce("t", b"child").result(10)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    producer.produce("t", b"parent again").result(5)
    assert sorted(values(node)) == [b"child", b"parent", b"parent again"]


def test_linger_gathers_records_of_a_while_into_one_batch(node):
    with Producer(node.bootstrap, linger_ms=300) as producer:
        producer.produce("t", b"0", partition=0)
        time.sleep(0.02)
        producer.produce("t", b"1", partition=0).result(5)
    assert len(node.logs[100].batches) == 1


def test_a_close_that_may_not_wait_loses_nothing(node, producer):
    refused = threading.Event()
    rest = []

    def close(future):
        rest.extend(producer.produce("t", b"%d" % i, partition=0) for i in range(1000))
        with pytest.raises(InvalidRequest, match="may not wait"):
            producer.close()
        refused.set()

    producer.produce("t", b"first", partition=0, on_delivery=close).result(5)
    assert refused.wait(5)
    producer.flush(10)
    assert all(future.result(0).durability == "flushed" for future in rest)


def test_a_close_with_a_timeout_that_is_none_loses_nothing(node, producer):
    sent = producer.produce("t", b"v")
    with pytest.raises(InvalidRequest, match="timeout must be a number"):
        producer.close("soon")
    assert sent.result(5).durability == "flushed"
    assert producer.produce("t", b"v").result(5).durability == "flushed"


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__cluster_metadata", "__mine"])
@pytest.mark.parametrize("acks", ["all", 0])
def test_topics_of_the_node_itself_are_refused_at_once_and_nothing_is_sent(node, topic, acks):
    """With acks=0 nobody would ever hear of it."""
    node.create(topic)
    with Producer(node.bootstrap, acks=acks, enable_idempotence=False) as producer:
        for send in (lambda: producer.produce(topic, b"x"), lambda: producer.produce_many(topic, [b"x"])):
            with pytest.raises(InvalidRequest, match=f"topic '{topic}' is the node's own"):
                send()
    assert values(node, topic) == []


@pytest.mark.parametrize("wrong", ["0", 1.0, True, b"0"])
def test_a_partition_that_is_no_number_is_refused_with_what_was_given(producer, wrong):
    said = f"partition must be an int or None, not {wrong!r}"
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        producer.produce("orders", b"x", partition=wrong)
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        producer.produce_many("orders", [b"x"], partition=wrong)


@pytest.mark.parametrize("wrong", [["orders"], b"orders", None, 5])
def test_a_topic_that_is_no_text_is_refused_with_what_was_given(producer, wrong):
    said = f"topic must be a str, not {type(wrong).__name__}"
    with pytest.raises(TypeError, match=said):
        producer.produce(wrong, b"x")
    with pytest.raises(TypeError, match=said):
        producer.produce_many(wrong, [b"x"])
