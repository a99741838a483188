"""Promises of a change of settings: it takes effect at once, loses nothing, and recovery judges by what was written."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress

import pytest

from ringlog.errors import BatchTooLarge, PartitionFenced
from ringlog.limits import MIB
from ringlog.log.events import Fenced
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.log.state import PartitionState
from ringlog.model import Durability
from tests.support.amounts import amount
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults, PowerLoss
from tests.support.log_workload import History, check_recovered, run_workload
from tests.support.logs import LogWorld


def policy(text, **others):
    return LogSettings(segment_bytes=1 * MIB, flush=FlushPolicy.parse(text), **others)


def reconfigure(world, settings):
    world.settings = settings
    world.store.reconfigure(world.partition, settings, now_ms=world.now_ms)


def state_of(world):
    return PartitionState.decode(world.fake.content(f"{world.path}/partition.state"))


def test_segments_and_batches_keep_to_the_new_bounds_at_once():
    world = LogWorld(settings=LogSettings(segment_bytes=8 * MIB))
    for _ in range(4):
        world.append(bytes(900_000))
    assert len(world.log.segments) == 1
    reconfigure(world, LogSettings(segment_bytes=1 * MIB, batch_bytes_max=1_000))
    with pytest.raises(BatchTooLarge):
        world.append(bytes(2_000))
    world.append(bytes(500))
    world.settle()
    assert [segment.next_offset for segment in world.log.segments] == [4, 5]
    assert len(world.values()) == 5


def test_a_shorter_age_rolls_the_segment_that_is_older():
    world = LogWorld()
    world.append(b"old")
    world.settle()
    world.now_ms += 5_000
    reconfigure(world, LogSettings(segment_bytes=1 * MIB, segment_ms=1_000))
    world.run()
    world.settle()
    assert [segment.base_offset for segment in world.log.segments] == [0, 1]


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(["ack", "interval:50", "os"], 2)))
def test_acks_report_what_the_new_policy_promises(before, after):
    world = LogWorld(settings=policy(before))
    for number in range(5):
        world.append(b"%d" % number)
        world.run()
    readable = world.log.readable_offset
    reconfigure(world, policy(after))
    assert world.log.readable_offset >= readable, "what a reader saw stays readable"
    world.events.clear()
    world.append(b"5")
    while world.log.written_offset < 6:
        world.run()
    last = [event for event in world.events if getattr(event, "offset", 0) == 6][-1]
    assert last.durability is (Durability.FLUSHED if after == "ack" else Durability.WRITTEN)
    assert world.values() == [b"%d" % number for number in range(6)]


def test_what_was_left_to_the_kernel_is_flushed_when_an_interval_is_set():
    world = LogWorld(settings=policy("os"))
    world.append(b"a")
    while world.log.written_offset < 1:
        world.run()
    reconfigure(world, policy("interval:50"))
    world.now_ms += 50
    while world.log.flushed_offset < 1:
        world.run()


@pytest.mark.parametrize(("before", "after"), [("ack", "os"), ("os", "ack")])
def test_the_state_on_disk_knows_the_policy_before_the_first_append_under_it(before, after):
    world = LogWorld(settings=policy(before))
    world.append(b"a")
    reconfigure(world, policy(after))
    assert state_of(world).reach_bytes == policy(after).reach_bytes
    assert world.log.flushed_offset == 1


def test_a_state_that_cannot_be_saved_fences_the_log_and_the_settings_hold_when_it_is_reopened():
    world = LogWorld(settings=policy("ack"))
    world.append(b"a")
    world.settle()
    world.fake.faults.fail("rename", nth=sum(call.kind == "rename" for call in world.fake.calls))
    reconfigure(world, policy("os"))
    assert any(isinstance(event, Fenced) for event in world.run())
    with pytest.raises(PartitionFenced):
        world.append(b"b")
    world.store.reopen(world.partition, now_ms=world.now_ms)
    assert world.log.settings == policy("os")
    assert state_of(world).reach_bytes == 0
    assert world.values() == [b"a"]


@pytest.mark.parametrize("seed", range(amount(short=60, full=500)))
def test_power_loss_among_changes_of_policy_loses_nothing_flushed_and_quarantines_nothing(seed):
    rng, history = random.Random(seed), History()
    disk = FakeDisk(seed, delays=True, faults=Faults(power_loss_at_step=rng.randint(10, 500)))
    world = None
    with suppress(PowerLoss):
        world = LogWorld(disk, policy("ack"), memory_bytes=16 << 20)
        for _ in range(60):
            run_workload(world, rng, history, cycles=rng.randint(0, 8))
            big = rng.choice([1 * MIB + 61, 4 * MIB])
            reconfigure(world, policy(rng.choice(["ack", "interval:20", "os"]), batch_bytes_max=big))
    if world is None:
        return
    survivor = disk.crash(rng)
    disk.lose_power()
    after = check_recovered(survivor, world, history)
    assert not any(segment.quarantined for segment in after.log.segments)
