"""Compaction against an oracle, with the power going at every step of it, and while producing."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from ringlog.errors import PartitionBusy
from ringlog.limits import MIB
from ringlog.log.verify import verify_partition
from tests.support.amounts import amount, cases
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults, PowerLoss
from tests.support.keyed_logs import COMPACT, KeyedLog
from tests.support.logs import LogWorld

SEEDS = cases(short=25, full=400)


def keyed_log(seed, *, batches):
    world = LogWorld(FakeDisk(seed), COMPACT, memory_bytes=16 * MIB)
    log = KeyedLog(world, random.Random(seed), keys=5, value_bytes=60_000)
    for _ in range(batches):
        log.produce(log.rng.randint(1, 3))
        log.run()
    log.settle()
    return log


def restart(log, rng):
    """Open what a power loss left."""
    survivor = log.world.fake.crash(rng)
    log.world.fake.lose_power()
    findings = verify_partition(survivor, log.world.path, compacted=True)
    assert [str(finding) for finding in findings if finding.is_violation] == []
    log.adopt(log.world.reopened(survivor))
    assert not any(segment.quarantined for segment in log.world.log.segments), log.world.report


def check_files(log):
    """Nothing is left of what was under way, and all files are right."""
    log.world.close()
    findings = verify_partition(log.world.disk, log.world.path, compacted=True)
    assert [str(finding) for finding in findings if finding.is_violation] == []
    names = [name for name, _ in log.world.disk.list_dir(log.world.path)]
    assert not [name for name in names if name.endswith(".clean")]
    bases = {segment.base_offset for segment in log.world.reopened().log.segments}
    assert {int(name[:20]) for name in names if name.endswith(".log")} <= bases


def test_power_loss_at_every_step_of_a_compaction_leaves_the_latest_of_each_key():
    log = keyed_log(1, batches=60)
    begun = log.world.fake.steps
    log.compact()
    ended = log.world.fake.steps
    log.check()
    for at in range(begun, ended, amount(short=5, full=1)):
        log = keyed_log(1, batches=60)
        log.world.fake.faults = Faults(power_loss_at_step=at)
        with pytest.raises(PowerLoss):
            log.compact()
        restart(log, random.Random(at))
        log.check()
        log.compact()
        log.check()
        assert log.superseded_below(log.world.log.active.base_offset) == []
        check_files(log)


@pytest.mark.parametrize("seed", SEEDS)
def test_compaction_while_producing_with_power_losses_keeps_to_the_oracle(seed):
    rng = random.Random(seed)
    log = keyed_log(seed, batches=rng.randint(5, 60))
    for _ in range(4):
        log.world.fake.delays = True
        log.world.fake.faults = Faults(power_loss_at_step=log.world.fake.steps + rng.randint(1, 900))
        with suppress(PowerLoss):
            for _ in range(300):
                log.world.now_ms += rng.choice([1, 50, 3_000])
                if rng.random() < 0.3:
                    with suppress(PartitionBusy):
                        log.produce(rng.randint(1, 3))
                log.run()
        restart(log, rng)
        log.check(tombstones_may_be_gone=True)
        # The producer goes on where it was, whatever was compacted.
        log.produce(1)
        log.settle()
    log.compact()
    log.check(tombstones_may_be_gone=True)
    check_files(log)
