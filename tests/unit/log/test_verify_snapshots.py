"""Violations in snapshots of producers: each is reported under its rule and at its place."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringlog.log.envelope import seal
from ringlog.log.findings import Rule
from ringlog.log.producers import SNAPSHOT_MAGIC, KeptBatch, ProducerEntry
from ringlog.log.verify import verify_partition
from tests.support.planted import Place, Plants, expect_report
from tests.support.sample_logs import closed_log

plant = Plants()


def _last_snapshot(log):
    return f"{log.state().active.next_offset:020d}.snapshot"


def _producer(log) -> ProducerEntry:
    """The one producer of the log, as its last batches made it."""
    entries = [
        KeptBatch(
            int(r["base_sequence"]), int(r["base_sequence"]) + 3, int(r["base_offset"]), int(r["last_offset"])
        )
        for name in log.segments()
        for r in log.batches(name)
        if r["producer_id"] >= 0
    ]
    return ProducerEntry(7, 0, entries[-5:], log.now_ms)


def _put_snapshot(log, *producers, next_offset=None):
    name = _last_snapshot(log)
    taken = log.state().active.next_offset if next_offset is None else next_offset
    log.put(name, seal(SNAPSHOT_MAGIC, (taken, list(producers))))
    return name


@plant
def a_flipped_bit_in_a_snapshot(log):
    log.flip(_last_snapshot(log), 20)
    return Place(Rule.SNAPSHOT, _last_snapshot(log), 4)


@plant
def a_snapshot_that_is_missing(log):
    log.disk.remove(log.file(_last_snapshot(log)))
    return Place(Rule.SNAPSHOT, _last_snapshot(log), None)


@plant
def a_snapshot_of_another_offset(log):
    return Place(Rule.SNAPSHOT, _put_snapshot(log, _producer(log), next_offset=4), 0)


@plant
def a_snapshot_above_the_end_of_the_log(log):
    name = "00000000000000009000.snapshot"
    log.put(name, seal(SNAPSHOT_MAGIC, (9000, [])))
    return Place(Rule.SNAPSHOT, name, None)


@plant
def a_snapshot_inside_a_batch(log):
    name = "00000000000000000006.snapshot"
    log.put(name, seal(SNAPSHOT_MAGIC, (6, [])))
    return Place(Rule.SNAPSHOT, name, None)


@plant
def a_snapshot_with_a_wrong_sequence(log):
    entry = _producer(log)
    entry.batches[-1] = replace(entry.batches[-1], base_sequence=1, last_sequence=4)
    return Place(Rule.PRODUCERS, _put_snapshot(log, entry), None)


@plant
def a_snapshot_with_a_wrong_producer_epoch(log):
    entry = _producer(log)
    entry.epoch = 3
    return Place(Rule.PRODUCERS, _put_snapshot(log, entry), None)


@plant
def a_snapshot_with_a_producer_that_never_was(log):
    stranger = ProducerEntry(8, 0, [KeptBatch(0, 3, 8, 11)], log.now_ms)
    return Place(Rule.PRODUCERS, _put_snapshot(log, _producer(log), stranger), None)


def test_the_planted_snapshot_helper_makes_one_that_is_right():
    log = closed_log()
    _put_snapshot(log, _producer(log))
    assert verify_partition(log.disk, log.path) == []


@pytest.mark.parametrize("damage", plant.all, ids=lambda damage: damage.__name__)
def test_a_planted_violation_is_reported_at_its_place(damage):
    expect_report(damage)
