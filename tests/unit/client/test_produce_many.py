"""produce_many against a ROUTER in a thread: whatever the columns are, each record arrives once and in its place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ringlog import Producer
from ringlog.errors import InvalidRequest
from ringlog.records.partitioner import partition_for
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.router import RouterNode, records, values


def test_a_batch_behind_one_in_flight_wakes_nobody_when_it_is_opened_nor_when_it_grows():
    with RouterNode() as node, Producer(node.bootstrap) as producer:
        producer.produce_many("t", [b"first"], partition=0).result(10)
        node.delay_s = 1.0  # while this one is in flight, the next batch stays open
        in_flight = producer.produce_many("t", [b"in flight"], partition=0)
        queue = producer._topics["t"].queues[0]
        wait_for("a batch in flight", lambda: queue.in_flight, stretched(5))
        wakes = 0
        wake = producer._connection.wake

        def counted() -> None:
            nonlocal wakes
            wakes += 1
            wake()

        producer._connection.wake = counted
        futures = [producer.produce_many("t", [b"%d" % n], partition=0) for n in range(50)]
        single = producer.produce("t", b"50", partition=0)
        assert wakes == 0
        node.delay_s = 0.0
        assert in_flight.result(10)[0].count == 1
        assert {future.result(10)[0].base_offset for future in futures} == set(range(2, 52))
        assert single.result(10).offset == 52


def test_a_few_records_at_a_time_share_batches_and_each_knows_its_place(node):
    node.create("t", 2)
    with Producer(node.bootstrap) as producer:
        calls = [producer.produce_many("t", [b"%d.%d" % (call, i) for i in range(3)]) for call in range(200)]
        ranges = [future.result(10) for future in calls]
    values = {
        (one.partition, one.base_offset + i): b"%d.%d" % (call, i)
        for call, (one,) in enumerate(ranges)
        for i in range(one.count)
    }
    assert len(values) == 600
    stored = {
        (partition, at): record.value
        for partition, log in records(node).items()
        for at, record in enumerate(log)
    }
    assert stored == values
    assert sum(len(node.logs[100 + partition].batches) for partition in (0, 1)) < 200


SAMPLE = [b"%d" % i + b"." * (i % 150) for i in range(5000)]
FORMS = {
    "list": lambda: SAMPLE,
    "str": lambda: [one.decode() for one in SAMPLE],
    "tuple": lambda: tuple(SAMPLE),
    "binary": lambda: pa.array(SAMPLE),
    "large_binary": lambda: pa.array(SAMPLE, type=pa.large_binary()),
    "string": lambda: pa.array([one.decode() for one in SAMPLE]),
    "chunked": lambda: pa.chunked_array([pa.array(SAMPLE[:17]), pa.array(SAMPLE[17:])]),
    "objects": lambda: np.array(SAMPLE, dtype=object),
}


@pytest.mark.parametrize("form", FORMS)
def test_many_records_arrive_once_in_order_whatever_their_form(node, form):
    with Producer(node.bootstrap, batch_size=16_384) as producer:
        ranges = producer.produce_many("t", FORMS[form](), partition=1).result(10)
    assert [record.value for record in records(node)[1]] == SAMPLE
    assert sum(one.count for one in ranges) == len(SAMPLE)
    assert {(one.topic, one.partition, one.durability) for one in ranges} == {("t", 1, "flushed")}
    assert all(len(batch) <= 16_384 for batch in node.logs[101].batches)


@pytest.mark.parametrize("form", FORMS)
def test_many_keyed_records_go_to_the_partitions_of_their_keys_in_order(node, form):
    keys = FORMS[form]()
    with Producer(node.bootstrap) as producer:
        producer.produce_many("t", SAMPLE, keys).result(10)
    found = records(node)
    for index in range(4):
        wanted = [one for one in SAMPLE if partition_for(one, 4) == index]
        assert [(record.key, record.value) for record in found[index]] == [(one, one) for one in wanted]


def test_many_records_without_a_key_go_round_the_partitions(node):
    with Producer(node.bootstrap, batch_size=16_384) as producer:
        ranges = producer.produce_many("t", SAMPLE).result(10)
    assert {one.partition for one in ranges} == {0, 1, 2, 3}
    assert sorted(values(node)) == sorted(SAMPLE)


def test_numpy_matrices_and_fixed_strings_are_records(node, producer):
    matrix = np.arange(40, dtype=np.uint8).reshape(10, 4)
    producer.produce_many("t", matrix, partition=0).result(5)
    producer.produce_many("t", np.array([b"abc", b"xyz"]), partition=0).result(5)
    assert [one.value for one in records(node)[0]] == [*(bytes(row) for row in matrix), b"abc", b"xyz"]


def test_timestamps_and_headers_come_with_their_records(node, producer):
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "a", "value": b"1"}], []], type=kind)
    producer.produce_many("t", [b"x", b"y"], headers=headers, timestamps=[7, 9], partition=0).result(5)
    seen = [(one.value, one.timestamp, one.headers) for one in records(node)[0]]
    assert seen == [(b"x", 7, [("a", b"1")]), (b"y", 9, [])]


def test_keys_that_are_missing_are_spread_and_null_values_stay_null(node, producer):
    producer.produce_many("t", [None] * 8, [None] * 8).result(5)
    assert {index: len(some) for index, some in records(node).items()} == {0: 2, 1: 2, 2: 2, 3: 2}
    assert values(node) == [None] * 8


def test_columns_that_do_not_fit_are_refused(producer):
    with pytest.raises(InvalidRequest, match="keys"):
        producer.produce_many("t", [b"a", b"b"], [b"k"])
    with pytest.raises(InvalidRequest, match="timestamps"):
        producer.produce_many("t", [b"a", b"b"], timestamps=[1])
    with pytest.raises(InvalidRequest, match="values"):
        producer.produce_many("t", b"not a list")
    with pytest.raises(TypeError, match="values"):
        producer.produce_many("t", [b"a", 17])


@pytest.mark.parametrize("wrong", [[2**63], [None], ["soon"], "soon", 1.5, 2**70])
def test_timestamps_that_are_none_are_refused(producer, wrong):
    with pytest.raises(InvalidRequest):
        producer.produce_many("t", [b"v"], timestamps=wrong)


def test_values_that_are_none_at_all_are_refused(producer):
    with pytest.raises(InvalidRequest, match="values must be a list"):
        producer.produce_many("t", None)


def test_nothing_at_all_is_done_at_once(producer):
    future = producer.produce_many("t", [])
    called = []
    future.add_done_callback(called.append)
    assert future.done()
    assert future.result(0) == []
    assert called == [future]


def test_many_and_single_records_keep_their_order(node, producer):
    producer.produce("t", b"0", partition=0)
    producer.produce_many("t", [b"1", b"2"], partition=0)
    producer.produce("t", b"3", partition=0).result(5)
    assert [one.value for one in records(node)[0]] == [b"0", b"1", b"2", b"3"]
