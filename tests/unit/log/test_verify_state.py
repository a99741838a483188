"""Violations in partition.state: each is reported under its rule and at its place."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringlog.log.epochs import EpochStart
from ringlog.log.findings import Rule
from ringlog.log.names import STATE_NAME
from tests.support.planted import FIRST, Place, Plants, expect_report

plant = Plants()


@plant
def a_state_that_is_missing(log):
    log.disk.remove(log.file(STATE_NAME))
    return Place(Rule.STATE, STATE_NAME, None)


@plant
def a_flipped_bit_in_the_state(log):
    log.flip(STATE_NAME, 20)
    return Place(Rule.STATE, STATE_NAME, 4)


@plant
def a_segment_that_is_listed_and_missing(log):
    log.disk.remove(log.file(f"{FIRST}.log"))
    return Place(Rule.CATALOGUE, f"{FIRST}.log", None)


@plant
def a_segment_that_is_there_and_not_listed(log):
    state = log.state()
    log.put(STATE_NAME, replace(state, sealed=state.sealed[1:]).encode())
    return Place(Rule.CATALOGUE, f"{FIRST}.log", None)


@plant
def a_catalogue_with_a_gap(log):
    state = log.state()
    entries = [replace(state.sealed[0], next_offset=state.sealed[0].next_offset - 1), *state.sealed[1:]]
    log.put(STATE_NAME, replace(state, sealed=entries).encode())
    return Place(Rule.CATALOGUE, STATE_NAME, None)


@plant
def a_segment_that_was_sealed_with_another_size(log):
    state = log.state()
    entries = [replace(state.sealed[0], bytes=state.sealed[0].bytes + 8), *state.sealed[1:]]
    log.put(STATE_NAME, replace(state, sealed=entries).encode())
    return Place(Rule.SIZE, f"{FIRST}.log", state.sealed[0].bytes)


@plant
def a_segment_that_was_sealed_with_another_end(log):
    state = log.state()
    entries = [replace(state.sealed[0], next_offset=state.sealed[0].next_offset + 1), *state.sealed[1:]]
    log.put(STATE_NAME, replace(state, sealed=entries).encode())
    return Place(Rule.NEXT_OFFSET, f"{FIRST}.log", state.sealed[0].bytes)


@plant
def a_segment_that_was_sealed_with_another_timestamp(log):
    state = log.state()
    entries = [replace(state.sealed[0], max_timestamp=5), *state.sealed[1:]]
    log.put(STATE_NAME, replace(state, sealed=entries).encode())
    return Place(Rule.MAX_TIMESTAMP, f"{FIRST}.log", None)


@plant
def an_active_segment_that_lost_what_was_flushed(log):
    active = log.segments()[-1]
    end = log.position(active, -1)
    log.put(active, log.content(active)[:end])
    return Place(Rule.SIZE, active, end)


@plant
def a_recovery_point_inside_a_batch(log):
    state, active = log.state(), log.segments()[-1]
    inside = log.position(active, -1) + 7
    log.put(STATE_NAME, replace(state, active=replace(state.active, position=inside)).encode())
    return Place(Rule.RECOVERY_POINT, active, inside)


@plant
def a_recovery_point_with_a_wrong_offset(log):
    state, active = log.state(), log.segments()[-1]
    point = replace(state.active, next_offset=state.active.next_offset + 1)
    log.put(STATE_NAME, replace(state, active=point).encode())
    return Place(Rule.NEXT_OFFSET, active, point.position)


@plant
def a_recovery_point_with_offsets_and_no_bytes(log):
    state = log.state()
    log.put(STATE_NAME, replace(state, active=replace(state.active, position=0)).encode())
    return Place(Rule.RECOVERY_POINT, STATE_NAME, None)


@plant
def a_recovery_point_with_a_wrong_timestamp(log):
    state, active = log.state(), log.segments()[-1]
    point = replace(state.active, max_timestamp=state.active.max_timestamp + 1)
    log.put(STATE_NAME, replace(state, active=point).encode())
    return Place(Rule.MAX_TIMESTAMP, active, None)


@plant
def a_recovery_point_with_the_timestamp_of_another_batch(log):
    state, active = log.state(), log.segments()[-1]
    point = replace(state.active, max_timestamp_offset=state.active.max_timestamp_offset - 4)
    log.put(STATE_NAME, replace(state, active=point).encode())
    return Place(Rule.MAX_TIMESTAMP, active, None)


@plant
def a_log_start_behind_the_end(log):
    state = log.state()
    log.put(STATE_NAME, replace(state, log_start_offset=state.active.next_offset + 1).encode())
    return Place(Rule.LOG_START, STATE_NAME, None)


@plant
def an_epoch_history_that_is_not_that_of_the_batches(log):
    state = log.state()
    epochs = [state.epochs[0], EpochStart(2, state.epochs[1].offset + 4)]
    log.put(STATE_NAME, replace(state, epochs=epochs).encode())
    return Place(Rule.EPOCH_HISTORY, STATE_NAME, None)


@plant
def an_epoch_history_that_falls(log):
    state = log.state()
    log.put(STATE_NAME, replace(state, epochs=state.epochs[::-1]).encode())
    return Place(Rule.EPOCH_HISTORY, STATE_NAME, None)


@pytest.mark.parametrize("damage", plant.all, ids=lambda damage: damage.__name__)
def test_a_planted_violation_is_reported_at_its_place(damage):
    expect_report(damage)
