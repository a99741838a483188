"""The sender while leaders change: what was acknowledged stands once and in order, whatever the old leader lost.

The model of `test_sender.py`, with a leader that dies or is replaced at any moment. A new leader has all that was
committed, and any part of the rest; it knows producers by what its log holds. The sender hears of it later.
"""

from __future__ import annotations

import pytest

from ringlog.client.partition_queue import ProducerId
from ringlog.errors import NodeUnavailable, NotLeader, OutOfOrderSequence
from ringlog.net.messages import PartitionMetadata, TopicMetadata
from ringlog.records.decode import decode
from tests.unit.client.test_sender import ModelNode, Simulation


class Failovers(Simulation):
    """One partition on nodes 1 to 3, one of which leads."""

    def __init__(self, seed: int, **settings) -> None:
        super().__init__(seed, **settings)
        self.leader, self.epoch = 1, 0
        self.batches: list[bytes] = []
        """What the leader's log holds."""
        self.committed = 0
        """So many of them are on enough nodes."""
        self.waiting: list[tuple[list, object, int]] = []
        """Answers that wait until so many batches are committed."""
        self.moves = 0
        self.learn()

    def learn(self) -> None:
        """The sender hears who leads."""
        place = PartitionMetadata(0, 7, self.leader, self.leader, self.epoch, [1, 2, 3], [1, 2, 3])
        moved = self.topic.update(TopicMetadata("t", "", 1, [place], {}))
        self.moves += len(moved)
        self.accumulator.touched.extend(moved)

    def pump(self) -> None:
        sent = len(self.wire)
        super().pump()
        for entry in self.wire[sent:]:
            entry.append(self.queue.node)

    def work(self) -> None:
        if not self.wire:
            return
        entry = self.wire.pop(0)
        if entry[3] != self.leader:
            self.answer(entry, NotLeader("another one leads"))
            return
        held = len(self.node.log)
        try:
            outcome = self.node.append(entry[1])
        except OutOfOrderSequence as error:
            self.answer(entry, error)
            return
        if len(self.node.log) > held:
            self.batches.append(entry[1])
        self.waiting.append((entry, outcome, len(self.batches)))

    def commit(self) -> None:
        self.committed = self.chance.randint(self.committed, len(self.batches))
        self.answer_committed()

    def answer_committed(self) -> None:
        done = [one for one in self.waiting if one[2] <= self.committed]
        self.waiting = [one for one in self.waiting if one[2] > self.committed]
        for entry, outcome, _ in done:
            self.answer(entry, outcome)

    def fail_over(self) -> None:
        """Another node leads; the old one is dead, or says so to those who wait for it."""
        dead = self.chance.random() < 0.5
        lost = NodeUnavailable("lost") if dead else NotLeader("no more")
        kept = self.chance.randint(self.committed, len(self.batches))
        self.leader, self.epoch = self.leader % 3 + 1, self.epoch + 1
        waiting, self.waiting = self.waiting, []
        self.batches, self.node = self.batches[:kept], ModelNode()
        for batch in self.batches:
            self.node.append(batch)
        for entry, _, _ in waiting:
            self.answer(entry, lost)
        for entry in self.wire:
            entry[3] = (
                0  # should the node lead again, it has long refused what waited for it in its former time
            )
        if dead:
            wire, self.wire = self.wire, []
            for entry in wire:
                self.answer(entry, lost)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_s += self.chance.random() * 0.1
            what = self.chance.random()
            if what < 0.25:
                self.produce(self.chance.randint(1, 12))
            elif what < 0.6:
                self.work()
            elif what < 0.75:
                self.commit()
            elif what < 0.82:
                self.fail_over()
            elif what < 0.92:
                self.learn()
            else:
                self.delay()
            self.pump()

    def settle(self) -> None:
        self.sender.flushing = 1
        self.accumulator.touched.append(self.queue)
        for _ in range(100_000):
            if all(future.done() for _, future in self.futures):
                return
            self.now_s += 0.05
            self.learn()
            self.pump()
            while self.wire:
                self.work()
            self.committed = len(self.batches)
            self.answer_committed()
        raise AssertionError("records are stuck")

    def places(self) -> list[int]:
        """Of the records that the log holds, which ones they are."""
        order = {value: i for i, (value, _) in enumerate(self.futures)}
        return [order[record.value] for batch in self.batches for record in decode(batch)]


@pytest.mark.parametrize("seed", range(200))
def test_what_all_in_sync_replicas_acknowledge_stands_once_and_in_order(seed):
    sim = Failovers(seed)
    sim.run(200)
    sim.settle()
    assert sim.moves > 3
    assert sim.places() == list(range(len(sim.futures)))
    sim.check_nothing_twice_and_in_order()


def test_nothing_leaves_to_a_new_leader_while_the_old_one_may_still_answer():
    sim = Failovers(3)
    sim.sender.flushing = 1
    sim.sender.on_producer(ProducerId(1, 0))
    sim.produce(1)
    sim.pump()
    assert [entry[3] for entry in sim.wire] == [1]
    sim.leader, sim.epoch = 2, 1
    sim.learn()
    sim.produce(1)
    sim.pump()
    assert [entry[3] for entry in sim.wire] == [1], "the second waits"
    sim.work()
    sim.pump()
    assert [(entry[3], entry[0].order) for entry in sim.wire] == [(2, 0)], (
        "the first comes first, and at once"
    )


def test_what_failed_at_the_old_leader_comes_to_the_new_one_the_first_alone():
    """Should that not know the producer, it would take any sequence: the first must be there before the second."""
    sim = Failovers(3)
    sim.sender.flushing = 1
    sim.sender.on_producer(ProducerId(1, 0))
    for _ in range(4):
        sim.produce(1)
        sim.pump()
        if not sim.committed:
            sim.work()
            sim.committed = 1
            sim.answer_committed()
    assert [entry[0].order for entry in sim.wire] == [1, 2, 3]
    for entry in sim.wire:
        sim.answer(entry, NodeUnavailable("lost"))
    sim.wire.clear()
    sim.leader, sim.epoch = 2, 1
    sim.learn()
    sim.pump()
    assert [entry[0].order for entry in sim.wire] == [1]
    sim.work()
    sim.committed = 2
    sim.answer_committed()
    sim.pump()
    assert [entry[0].order for entry in sim.wire] == [2, 3]
