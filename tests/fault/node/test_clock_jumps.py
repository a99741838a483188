"""Clock jumps of an hour either way: load does not notice, and nothing is deleted, expired or out of order."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import ringlog
from tests.support.amounts import cases, chance
from tests.support.clock import ShiftedClock
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.trial import TOPIC, Trial

HOUR_S = 3600


@pytest.mark.timeout(3600)
def test_an_hour_forth_or_back_changes_nothing_for_those_who_produce_and_consume(tmp_path: Path):
    rng = chance("clock")
    clock = ShiftedClock(tmp_path)
    with Trial(tmp_path, environment=clock.environment()) as trial:
        with trial.load(rate=500) as load:
            load.wait_warm()
            for number in cases(short=3, full=50):
                clock.jump_to(HOUR_S * (1 if number % 2 == 0 else -1))
                load.wait_writable(time.monotonic(), within_s=stretched(2.0))
                time.sleep(rng.uniform(0.1, 0.5))
            clock.jump_to(0)
            errors = [dict(worker.errors) for worker in [*load.producers, *load.consumers] if worker.errors]
            assert not errors, f"no session expires: {errors}"
        trial.judge(records_min=100)


@pytest.mark.timeout(3600)
def test_an_hour_forth_or_back_deletes_no_record_and_moves_no_partition_of_a_group(tmp_path: Path):
    rng = chance("clock of groups")
    clock = ShiftedClock(tmp_path)
    with (
        Trial(tmp_path, environment=clock.environment()) as trial,
        ringlog.Admin(trial.node.bootstrap) as admin,
        ringlog.Producer(trial.node.bootstrap) as producer,
        ringlog.Consumer(trial.node.bootstrap, group_id="g", enable_auto_commit=False) as consumer,
    ):
        # Of both an hour is more than enough to be over: of the time that records stay, and of a session.
        admin.create_topic("brief", 2, config={"retention.ms": HOUR_S * 1000 // 2, "segment.ms": 1})
        consumer.subscribe([TOPIC])
        wait_for(
            "an assignment",
            lambda: (consumer.poll(50), len(consumer.assignment()) == trial.partitions)[1],
            stretched(20),
        )
        consumer.commit(dict.fromkeys(consumer.assignment(), 0))
        before = group_of(admin)
        sent = 0

        def produce() -> None:
            nonlocal sent
            for _ in range(10):
                producer.produce("brief", b"kept", partition=sent % 2).result(stretched(10))
                sent += 1

        def are_rolled() -> bool:
            produce()
            return all(part.segments > 1 for part in admin.describe_topic("brief").partitions)

        wait_for("something to delete", are_rolled, stretched(20))
        for number in cases(short=4, full=50):
            clock.jump_to(HOUR_S * (1 if number % 2 == 0 else -1))
            produce()
            time.sleep(rng.uniform(0.1, 0.5))
        clock.jump_to(0)
        assert group_of(admin) == before
        kept = admin.describe_topic("brief").partitions
        assert [part.log_start_offset for part in kept] == [0, 0], "nothing is deleted early"
        assert sum(part.readable_offset for part in kept) == sent


def group_of(admin: ringlog.Admin) -> tuple[object, ...]:
    """What a rebalance would change."""
    told = admin.describe_group("g")
    return told.state, told.epoch, [(one.member_id, one.epoch, one.assigned) for one in told.members]
