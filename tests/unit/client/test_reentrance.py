"""Whoever produces while its own thread is making a record: no record is lost, none comes into a batch that is closed.

A finalizer, a signal handler or the code of a record's own parts does. Here it is an object whose headers are read.
"""

from __future__ import annotations

import pytest

from ringlog.client.accumulator import Accumulator, TopicQueues
from ringlog.client.many import Chunk, Rows
from ringlog.client.settings import ProducerSettings
from ringlog.net.framing import Acks
from ringlog.net.messages import PartitionMetadata, TopicMetadata
from ringlog.records.builder import HEADROOM
from ringlog.records.columns import Column
from ringlog.records.decode import decode


class Interrupted:
    """Headers, or a column; the first time that it is read, somebody else has his turn."""

    def __init__(self, of, meanwhile) -> None:
        self._of = of
        self._meanwhile = [meanwhile]

    def _interrupt(self) -> None:
        if self._meanwhile:
            self._meanwhile.pop()()

    def __iter__(self):
        self._interrupt()
        return iter(self._of)

    def __arrow_c_array__(self, requested_schema=None):
        self._interrupt()
        return self._of.__arrow_c_array__(requested_schema)


class World:
    def __init__(self) -> None:
        self.accumulator = Accumulator(ProducerSettings(batch_size=4096))
        metadata = TopicMetadata("t", "", 1, [PartitionMetadata(0, 7, 0, 0)], {})
        self.topic = TopicQueues(metadata, 5)
        self.queue = self.topic.queues[0]

    def append(self, value: bytes, headers=None):
        record = (value, None, 17, headers)
        future = self.accumulator.append(self.topic, self.queue, record, Acks.ALL, 0.0)
        assert future is not None
        return future

    def extend(self, count: int, meanwhile):
        values = Interrupted(Column.of([b"few"] * count), meanwhile)
        chunk = Chunk(values, None, None, 17, count)
        part = self.accumulator.extend(self.topic, self.queue, chunk, Rows(0, count), Acks.ALL, 0.0)
        assert part is not None
        return part

    def batches(self) -> dict[object, list[bytes]]:
        """The values of each batch that would leave, by the state that its futures know."""
        self.accumulator.close(self.queue)
        found: dict[object, list[bytes]] = {}
        for batch in self.queue.ready:
            assert batch.state not in found, "a batch leaves once"
            assert batch.builder is not None
            data = memoryview(batch.builder.finish())[HEADROOM:]
            found[batch.state] = [record.value for record in decode(data, check_crc=False)]
            assert batch.state.count == len(found[batch.state]) == len(batch.state.timestamps)
        assert list(self.accumulator.unfinished) == sorted(found, key=list(self.accumulator.unfinished).index)
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_a_record_never_joins_a_batch_that_was_closed_while_it_was_read(world):
    world.append(b"first")
    inner = []
    outer = world.append(b"outer", Interrupted([], lambda: inner.append(world.append(b"x" * 4090))))
    batches = world.batches()
    for (state, index), value in ((outer, b"outer"), (inner[0], b"x" * 4090)):
        assert batches[state][index] == value
    assert sorted(value for values in batches.values() for value in values) == sorted(
        [b"first", b"outer", b"x" * 4090]
    )


def test_a_record_is_not_lost_when_another_opened_the_batch_while_it_was_read(world):
    inner = []
    outer = world.append(b"outer", Interrupted([], lambda: inner.append(world.append(b"inner"))))
    batches = world.batches()
    for (state, index), value in ((outer, b"outer"), (inner[0], b"inner")):
        assert batches[state][index] == value


@pytest.mark.parametrize("first", [[], [b"first"]])
@pytest.mark.parametrize("size", [5, 4090])
def test_columns_know_their_place_when_a_record_came_while_they_were_read(world, first, size):
    for value in first:
        world.append(value)
    inner = []
    part = world.extend(3, lambda: inner.append(world.append(b"x" * size)))
    batches = world.batches()
    assert batches[part.state][part.first : part.first + part.records] == [b"few"] * 3
    state, index = inner[0]
    assert batches[state][index] == b"x" * size
    assert sum(len(values) for values in batches.values()) == len(first) + 4
