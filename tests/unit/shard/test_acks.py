"""Acknowledgements that wait: each goes out when all of its batch is durable, none before, none twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import PartitionFenced
from ringlog.model import Durability
from ringlog.shard.acks import AckQueue
from ringlog.shard.asker import Asker
from tests.support.shard_world import FakeOutlet


def add(
    queue: AckQueue, outlet: FakeOutlet, correlation: int, base: int, count: int, repeated: bool = False
) -> None:
    queue.add(
        Asker(outlet, 1, correlation, 0, 1),
        base_offset=base,
        next_offset=base + count,
        append_time_ms=-1,
        repeated=repeated,
        received_us=0,
    )


def test_a_batch_waits_until_its_last_record_is_durable():
    queue, outlet = AckQueue(1), FakeOutlet()
    add(queue, outlet, 1, 0, 3)
    for offset in (1, 2):
        queue.advance(offset, Durability.FLUSHED, 0)
        assert outlet.take() == []
    queue.advance(3, Durability.FLUSHED, 0)
    assert [reply.correlation for reply in outlet.take()] == [1]


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=20), st.data())
def test_each_is_answered_once_and_in_the_order_of_the_offsets(batches, data):
    queue, outlet, ends, end = AckQueue(1), FakeOutlet(), [], 0
    for correlation, (count, repeat_first) in enumerate(batches):
        if repeat_first and ends:
            add(queue, outlet, 1000 + correlation, 0, ends[0], repeated=True)
        add(queue, outlet, correlation, end, count)
        end += count
        ends.append(end)
    answered = []
    for offset in [*sorted(data.draw(st.lists(st.integers(0, end), max_size=5))), end]:
        queue.advance(offset, Durability.FLUSHED, 0)
        now = [reply.correlation for reply in outlet.take()]
        assert all(correlation >= 1000 or ends[correlation] <= offset for correlation in now)
        answered += now
    first_time = [correlation for correlation in answered if correlation < 1000]
    assert first_time == list(range(len(batches)))
    assert len(set(answered)) == len(answered)
    assert len(queue) == 0


def test_what_is_refused_is_not_answered_again():
    queue, outlet = AckQueue(1), FakeOutlet()
    add(queue, outlet, 1, 0, 1)
    queue.refuse_all(PartitionFenced("reopen"))
    queue.advance(9, Durability.FLUSHED, 0)
    (reply,) = outlet.take()
    assert reply.error.code == "PARTITION_FENCED"


def test_who_is_dead_is_not_answered():
    queue, dead, living = AckQueue(1), FakeOutlet(), FakeOutlet()
    add(queue, dead, 1, 0, 1)
    add(queue, living, 2, 1, 1)
    queue.forget(dead)
    queue.advance(2, Durability.FLUSHED, 0)
    assert (dead.take(), [reply.correlation for reply in living.take()]) == ([], [2])
