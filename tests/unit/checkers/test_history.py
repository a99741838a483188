"""C1 finds every planted fault in a history, and nothing in a good one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ringlog.model import Durability
from tests.support.checkers.history import check_history, check_recordings
from tests.support.checkers.recording import (
    Acked,
    Failed,
    Polled,
    Positioned,
    ReadAll,
    Recorder,
    Sent,
    filling,
    id_of,
    read_recordings,
    value_of,
)
from tests.support.checkers.violations import Rule, report

T0, T1 = "orders-0", "orders-1"


def good_history() -> list:
    """Two producers, two partitions, a consumer that follows, one that reads all at the end."""
    return [
        Sent("a", T0, [0, 1, 2]),
        Sent("a", T1, [3]),
        Sent("b", T0, [0, 1]),
        Acked("a", T0, 0, 0, "flushed"),
        Acked("a", T0, 1, 1, "flushed"),
        Acked("b", T0, 0, 2, "flushed"),
        Acked("a", T0, 2, 3, "flushed"),
        Acked("a", T1, 3, 0, "committed"),
        Failed("b", T0, 1, "DELIVERY_TIMEOUT"),
        Positioned("follower", T0, 0),
        Polled("follower", T0, [0, 1], [("a", 0), ("a", 1)]),
        Polled("follower", T0, [2], [("b", 0)]),
        Positioned("auditor", T0, 0),
        Polled("auditor", T0, [0, 1, 2, 3], [("a", 0), ("a", 1), ("b", 0), ("a", 2)]),
        ReadAll("auditor", T0, 4),
        Positioned("auditor", T1, 0),
        Polled("auditor", T1, [0], [("a", 3)]),
        ReadAll("auditor", T1, 1),
    ]


def changed(old, new) -> list:
    """The good history with one event replaced (or, by None, left out)."""
    history = good_history()
    at = history.index(old)
    history[at : at + 1] = [] if new is None else new if isinstance(new, list) else [new]
    return history


def rules(events, **settings) -> set[Rule]:
    return {violation.rule for violation in check_history(events, **settings)}


LAST = Polled("auditor", T0, [0, 1, 2, 3], [("a", 0), ("a", 1), ("b", 0), ("a", 2)])


def test_a_good_history_has_no_violations():
    assert check_history(good_history()) == []
    assert report([]) == "no violations"


def test_a_record_that_was_given_up_may_be_in_the_log():
    more = Polled("auditor", T0, [0, 1, 2, 3, 4], [*LAST.ids, ("b", 1)])
    history = changed(LAST, more)
    history[history.index(ReadAll("auditor", T0, 4))] = ReadAll("auditor", T0, 5)
    assert check_history(history) == []


def test_a_lost_acknowledged_record_at_the_end_of_the_log_is_found():
    history = changed(LAST, Polled("auditor", T0, LAST.offsets[:3], LAST.ids[:3]))
    history[history.index(ReadAll("auditor", T0, 4))] = ReadAll("auditor", T0, 3)
    assert rules(history) == {Rule.LOST}
    assert "a/2, acknowledged at 3, and the log ends before it" in report(check_history(history))


def test_a_lost_acknowledged_record_that_another_replaced_is_found():
    history = changed(LAST, Polled("auditor", T0, LAST.offsets, [("a", 0), ("a", 1), ("b", 0), ("b", 1)]))
    assert rules(history) == {Rule.LOST, Rule.TWO_VALUES}


def test_a_record_that_was_read_and_then_lost_is_found():
    history = [
        Sent("a", T0, [0, 1]),
        Acked("a", T0, 0, 0, "flushed"),
        Positioned("follower", T0, 0),
        Polled("follower", T0, [0, 1], [("a", 0), ("a", 1)]),
        Positioned("auditor", T0, 0),
        Polled("auditor", T0, [0], [("a", 0)]),
        ReadAll("auditor", T0, 1),
    ]
    assert rules(history) == {Rule.LOST}


def test_a_record_at_two_offsets_is_found():
    twice = Polled("auditor", T0, [0, 1, 2, 3, 4], [*LAST.ids, ("a", 2)])
    history = changed(LAST, twice)
    history[history.index(ReadAll("auditor", T0, 4))] = ReadAll("auditor", T0, 5)
    assert rules(history) == {Rule.TWO_OFFSETS}
    assert rules(history, idempotent=False) == {Rule.TWO_OFFSETS}, "it was acknowledged"


def test_an_unacknowledged_record_at_two_offsets_is_a_fault_of_idempotent_producers_only():
    twice = Polled("auditor", T0, [0, 1, 2, 3, 4, 5], [*LAST.ids, ("b", 1), ("b", 1)])
    history = changed(LAST, twice)
    history[history.index(ReadAll("auditor", T0, 4))] = ReadAll("auditor", T0, 6)
    assert rules(history) == {Rule.TWO_OFFSETS}
    assert rules(history, idempotent=False) == set()


def test_two_acknowledgements_of_one_record_at_different_offsets_are_found():
    old = Acked("a", T0, 2, 3, "flushed")
    assert Rule.TWO_OFFSETS in rules(changed(old, [old, Acked("a", T0, 2, 4, "flushed")]))


def test_two_values_at_one_offset_are_found():
    old = Polled("follower", T0, [2], [("b", 0)])
    found = rules(changed(old, Polled("follower", T0, [2], [("b", 1)])))
    assert Rule.TWO_VALUES in found


def test_reordered_records_of_one_producer_are_found():
    history = [
        Sent("a", T0, [0, 1]),
        Acked("a", T0, 1, 0, "flushed"),
        Acked("a", T0, 0, 1, "flushed"),
        Positioned("auditor", T0, 0),
        Polled("auditor", T0, [0, 1], [("a", 1), ("a", 0)]),
        ReadAll("auditor", T0, 2),
    ]
    assert rules(history) == {Rule.PRODUCER_ORDER}


def test_a_poll_that_goes_back_is_found():
    old = Polled("follower", T0, [2], [("b", 0)])
    assert rules(changed(old, [old, Polled("follower", T0, [1], [("a", 1)])])) == {Rule.GOING_BACK}


def test_a_poll_that_returns_a_record_twice_in_one_list_is_found():
    old = Polled("follower", T0, [2], [("b", 0)])
    assert rules(changed(old, Polled("follower", T0, [2, 2], [("b", 0)] * 2))) == {Rule.GOING_BACK}


def test_a_poll_that_skips_is_found():
    old = Polled("follower", T0, [2], [("b", 0)])
    assert rules(changed(old, Polled("follower", T0, [3], [("a", 2)]))) == {Rule.SKIPPED}


def test_a_first_poll_above_the_position_is_found():
    old = Polled("follower", T0, [0, 1], [("a", 0), ("a", 1)])
    assert rules(changed(old, Polled("follower", T0, [1], [("a", 1)]))) == {Rule.SKIPPED}


def test_a_reading_that_stops_before_the_end_is_found():
    history = changed(LAST, Polled("auditor", T0, LAST.offsets[:3], LAST.ids[:3]))
    assert rules(history) == {Rule.SKIPPED, Rule.LOST}


def test_bytes_that_nobody_sent_are_found():
    assert Rule.INVENTED in rules(changed(LAST, Polled("auditor", T0, LAST.offsets, [*LAST.ids[:3], None])))


def test_a_record_in_the_wrong_partition_is_found():
    old = Polled("auditor", T1, [0], [("a", 3)])
    history = changed(old, Polled("auditor", T1, [0, 1], [("a", 3), ("b", 1)]))
    history[history.index(ReadAll("auditor", T1, 1))] = ReadAll("auditor", T1, 2)
    assert rules(history) == {Rule.INVENTED}


def test_an_ack_of_less_than_the_durability_asked_for_is_found():
    old = Acked("a", T0, 2, 3, "flushed")
    history = changed(old, Acked("a", T0, 2, 3, "written"))
    assert rules(history) == {Rule.WEAK_ACK}
    assert rules(history, durability_min=Durability.WRITTEN) == set()


def test_a_history_in_which_nobody_read_the_log_is_not_called_good():
    assert rules(changed(ReadAll("auditor", T1, 1), None)) == {Rule.UNREAD}


@pytest.mark.parametrize("size", [0, 1, 7, 100, 5000])
def test_every_byte_of_a_value_is_checked(size):
    value = value_of("w-1", 42, size)
    assert len(value) >= size
    assert id_of(value) == ("w-1", 42)
    for at in range(0, len(value), 1 + size // 50):
        spoilt = bytearray(value)
        spoilt[at] ^= 0x01
        assert id_of(bytes(spoilt)) != ("w-1", 42)
    assert id_of(b"") is None
    assert id_of(None) is None


def test_sizes_of_values_are_the_same_at_every_run():
    sizes = [filling("p", number, 4096) for number in range(1000)]
    assert sizes == [filling("p", number, 4096) for number in range(1000)]
    assert max(sizes) > 2000 > min(sizes)


def test_what_workers_record_is_what_the_judge_reads(tmp_path):
    with Recorder(str(tmp_path), "p") as producer, Recorder(str(tmp_path), "c") as consumer:
        producer.sent(T0, [0, 1])
        producer.acked(T0, 0, 0, "flushed")
        producer.failed(T0, 1, "DELIVERY_TIMEOUT")
        consumer.positioned(T0, 0)
        consumer.polled(T0, [0], [value_of("p", 0, 30)])
        consumer.read_all(T0, 1)
    assert check_recordings(str(tmp_path)) == []
    assert Acked("p", T0, 0, 0, "flushed") in read_recordings(str(tmp_path))


def test_a_recording_of_a_killed_worker_has_all_whole_lines(tmp_path):
    script = (
        "import os, sys, signal\n"
        "from tests.support.checkers.recording import Recorder\n"
        f"r = Recorder({str(tmp_path)!r}, 'p')\n"
        "r.sent('t-0', range(5)); r.acked('t-0', 0, 0, 'flushed')\n"
        'os.write(r._fd, b\'{"event":"ack\'); os.kill(os.getpid(), signal.SIGKILL)\n'
    )
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": "."}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert read_recordings(str(tmp_path)) == [
        Sent("p", "t-0", [0, 1, 2, 3, 4]),
        Acked("p", "t-0", 0, 0, "flushed"),
    ]
