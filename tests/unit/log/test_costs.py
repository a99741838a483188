"""Promises of cost: four times as many partitions, producers or extents are four times the work, not sixteen."""

from __future__ import annotations

import numpy as np
import pytest

import ringlog.log.store as store_module
from ringlog.errors import PartitionBusy
from ringlog.log import checkpoints
from ringlog.log.batch import BatchInfo, batch_infos
from ringlog.log.extent import Extent
from ringlog.log.producers import ProducerTable
from ringlog.log.recent_tail import LogTail
from ringlog.log.replay import replay_producers
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.model import TopicPartition
from ringlog.records.scan import scan
from tests.support.fake_disk import FakeDisk
from tests.support.logs import SMALL_SEGMENTS, LogWorld, batch_of
from tests.support.steps import steps

FEW, MANY = 25, 100
LINEAR = 1.25 * MANY / FEW
"""What many may cost, counted in what few do: that many times as much, and a little."""


def names(count):
    return [TopicPartition("t", number) for number in range(count)]


def world_of(count, settings=SMALL_SEGMENTS, **disk_settings):
    """A store whose partitions have all written something, on a disk where completions trickle in."""
    world = LogWorld(FakeDisk(1, **disk_settings), settings, open_now=False)
    for name in names(count):
        world.store.open(name, settings, now_ms=world.now_ms)
    append_to_all(world, count)
    world.settle()
    return world


def append_to_all(world, count):
    for name in names(count):
        data = batch_of(b"x" * 100)
        infos = batch_infos(scan(data).table)
        world.store.append(name, memoryview(data), infos, now_ms=world.now_ms)


def test_a_clean_stop_costs_as_much_as_there_are_partitions(monkeypatch):
    looked_at = count_calls(monkeypatch, LogTail, "__len__")
    costs = []
    for count in (FEW, MANY):
        world = world_of(count)
        looked_at.clear()
        world.close()
        costs.append(len(looked_at))
    assert costs[1] <= LINEAR * costs[0]


def test_a_drain_costs_as_much_as_there_are_partitions_when_completions_trickle_in(monkeypatch):
    looked_at = count_calls(monkeypatch, store_module.LogStore, "_settled")
    costs = []
    for count in (FEW, MANY):
        world = world_of(count)
        one_at_a_time(world.fake)
        append_to_all(world, count)
        looked_at.clear()
        world.settle()
        costs.append(len(looked_at))
    assert costs[1] <= LINEAR * costs[0]


def test_refused_appends_cost_one_look_at_all_partitions_in_a_cycle(monkeypatch):
    world = world_of(FEW)
    monkeypatch.setattr(checkpoints, "UNCHECKPOINTED_BYTES_PER_SHARD", 10)
    looked = count_calls(monkeypatch, checkpoints.Checkpoints, "move")

    def refuse_all():
        for name in names(FEW):
            data = batch_of(b"x" * 100)
            with pytest.raises(PartitionBusy):
                world.store.append(name, memoryview(data), batch_infos(scan(data).table), now_ms=world.now_ms)

    refuse_all()
    assert len(looked) == 1
    world.run()
    refuse_all()
    assert len(looked) == 2


def test_room_that_a_checkpoint_made_is_seen_in_the_next_cycle(monkeypatch):
    world = world_of(FEW)
    monkeypatch.setattr(checkpoints, "UNCHECKPOINTED_BYTES_PER_SHARD", 1_000)
    with pytest.raises(PartitionBusy):
        append_to_all(world, 1)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_BYTES", 0)
    world.run()
    with pytest.raises(PartitionBusy):
        append_to_all(world, 1)
    world.settle()
    append_to_all(world, 1)


def test_flushes_by_interval_cost_as_much_as_there_are_logs_due():
    costs = []
    for count in (FEW, MANY):
        settings = LogSettings(flush=FlushPolicy.parse("interval:1000"))
        world = world_of(count, settings)
        schedule = world.store.flushes
        for number, name in enumerate(names(count)):
            schedule.plan(name, world.now_ms + number)

        def run_all(world=world, schedule=schedule):
            while len(schedule):
                world.now_ms += 1
                schedule.take_due(world.now_ms)

        costs.append(steps(run_all))
    assert costs[1] <= LINEAR * costs[0]


class CountingTable(np.ndarray):
    """A table of batches that counts the cells that are taken from it."""

    taken = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        CountingTable.taken += getattr(found, "size", 1)
        return found


def test_a_replay_costs_as_much_as_there_are_batches_however_many_producers_sent_them():
    batches = b"".join(bytes(batch_of(b"v", producer=(0, 0, 0))) for _ in range(400))
    table = scan(memoryview(bytearray(batches))).table.copy().view(CountingTable)
    costs = []
    for producers in (4, 400):
        table["producer_id"] = np.arange(400) % producers
        CountingTable.taken = 0
        replay_producers(ProducerTable(), table, 0)
        costs.append(CountingTable.taken)
    assert costs[1] <= 10 * costs[0] <= 10 * 20 * 400


@pytest.mark.parametrize("producers", [1, 3, 40])
def test_a_replay_leaves_what_appends_left(producers):
    rng = np.random.default_rng(producers)
    sent, live, sequence = bytearray(), ProducerTable(), {}
    for number in range(200):
        producer = int(rng.integers(producers))
        epoch = number // 150
        first = sequence.get((producer, epoch), 0)
        batch = batch_of(b"v", b"w", producer=(producer, epoch, first))
        sequence[producer, epoch] = first + 2
        live.note(BatchInfo(len(batch), 2, 0, producer, epoch, first), 2 * number, 7)
        sent += batch
    table = scan(memoryview(sent)).table.copy()
    table["base_offset"] = 2 * np.arange(200)
    table["last_offset"] = table["base_offset"] + 1
    replayed = ProducerTable()
    for part in np.array_split(table, 5):
        replay_producers(replayed, part, 7)
    assert replayed.entries == live.entries, "also in the order of last use"


def test_a_tail_gives_its_extents_in_order_and_finds_them_while_the_oldest_go():
    tail = LogTail()
    extents = [Extent(None, 0, 10 * number) for number in range(500)]
    for number, extent in enumerate(extents):
        tail.append(extent)
        if number % 3:
            first = tail.take_oldest()
            assert first is extents[first.base_offset // 10]
            assert list(tail.since(first.base_offset + 9)) == []
            if len(tail):
                assert next(tail.since(extent.base_offset + 5)) is extent
                assert (
                    list(tail.since(tail.oldest.base_offset))
                    == extents[first.base_offset // 10 + 1 : number + 1]
                )
    assert len(tail._extents) <= 2 * len(tail) + 1


def count_calls(monkeypatch, owner, name):
    calls, real = [], getattr(owner, name)

    def counting(*arguments, **named):
        calls.append(1)
        return real(*arguments, **named)

    monkeypatch.setattr(owner, name, counting)
    return calls


def one_at_a_time(disk):
    """Let each call for completions return one."""
    real = disk.completions

    def one(wait_s=0.0):
        if not disk._kept:
            disk._kept = real(wait_s)
        first, disk._kept = disk._kept[:1], disk._kept[1:]
        return first

    disk.completions = one
