"""Power loss: unflushed bytes are dropped, or torn at 512 bytes. No record that was acknowledged as flushed is lost."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from tests.support.amounts import amount, cases
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults, PowerLoss
from tests.support.log_workload import History, check_recovered, run_workload, settings_for
from tests.support.logs import LogWorld

SEEDS = cases(short=150, full=500)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_flushed_record_is_lost_when_power_goes_at_a_random_moment(seed):
    rng = random.Random(seed)
    settings, history = settings_for(rng), History()
    disk = FakeDisk(seed, delays=True, faults=Faults(power_loss_at_step=rng.randint(10, 700)))
    world = None
    with suppress(PowerLoss):
        world = LogWorld(disk, settings, memory_bytes=16 << 20)
        run_workload(world, rng, history, cycles=400)
    world = world or LogWorld(FakeDisk(seed), settings, open_now=False)
    for _ in range(3):
        survivor = disk.crash(rng)
        disk.lose_power()
        survivor.delays = True
        world = check_recovered(survivor, world, history)
        # Go on where the log now ends, lose power again in the middle, several times over.
        history.sent = {
            offset: value for offset, value in history.sent.items() if offset < world.log.next_offset
        }
        history.flushed_offset = world.log.next_offset
        history.sequence = len(history.sent)
        disk = survivor
        disk.faults = Faults(power_loss_at_step=disk.steps + rng.randint(1, 200))
        with suppress(PowerLoss):
            run_workload(world, rng, history, cycles=60)
    disk.lose_power()


def test_power_loss_during_recovery_loses_nothing_either():
    rng = random.Random(11)
    history = History()
    world = LogWorld(FakeDisk(11), settings_for(rng))
    run_workload(world, rng, history, cycles=40)
    crashed = world.fake.crash(rng)
    world.fake.lose_power()
    steps = check_recovered(crashed.crash(random.Random(1), survival=1.0), world, history).fake.steps
    for at in range(0, steps, amount(short=7, full=1)):
        disk = crashed.crash(random.Random(1), survival=1.0)
        disk.faults = Faults(power_loss_at_step=at)
        with pytest.raises(PowerLoss):
            check_recovered(disk, world, history)
        check_recovered(disk.crash(random.Random(at)), world, history)


def test_power_loss_during_a_clean_stop_loses_nothing():
    def world_and_history():
        rng, history = random.Random(12), History()
        made = LogWorld(FakeDisk(12))
        run_workload(made, rng, history, cycles=40)
        history.note(made.settle())
        return made, history

    world, history = world_and_history()
    before = world.fake.steps
    world.close()
    for at in range(before, world.fake.steps):
        world, history = world_and_history()
        world.fake.faults = Faults(power_loss_at_step=at)
        with pytest.raises(PowerLoss):
            world.close()
        check_recovered(world.fake.crash(random.Random(at)), world, history)


def test_power_loss_during_a_truncation_leaves_the_log_before_or_after_it():
    def world_with_records():
        world = LogWorld(FakeDisk(13))
        for number in range(60):
            world.append(b"%d" % number + bytes(50_000), producer=(5, 0, number))
            world.settle()
        return world

    world = world_with_records()
    before = world.fake.steps
    world.store.truncate(world.partition, 25, now_ms=world.now_ms)
    for at in range(before, world.fake.steps, amount(short=3, full=1)):
        world = world_with_records()
        world.fake.faults = Faults(power_loss_at_step=at)
        with pytest.raises(PowerLoss):
            world.store.truncate(world.partition, 25, now_ms=world.now_ms)
        after = world.reopened(world.fake.crash(random.Random(at)))
        count = after.log.next_offset
        assert 25 <= count <= 60
        assert [value.split(b"\0")[0] for value in after.values()] == [
            b"%d" % number for number in range(count)
        ]
        # The producers' state fits the records that are there: the next sequence, and no other, is taken.
        after.append(b"next", producer=(5, 0, count))
        after.settle()
