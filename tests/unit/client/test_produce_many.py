"""produce_many against a ROUTER in a thread."""

from __future__ import annotations

from ringlog import Producer
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.router import RouterNode


def test_a_few_records_that_join_an_open_batch_wake_nobody():
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

        futures = [producer.produce_many("t", [b"0"], partition=0)]
        wait_for("the I/O thread knows the batch", lambda: not producer._accumulator.touched, stretched(5))
        producer._connection.wake = counted
        futures += [producer.produce_many("t", [b"%d" % n], partition=0) for n in range(1, 50)]
        assert wakes == 0
        node.delay_s = 0.0
        assert in_flight.result(10)[0].count == 1
        assert {future.result(10)[0].base_offset for future in futures} == set(range(2, 52))
