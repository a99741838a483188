"""The ring under two real processes, killed at every step; under ThreadSanitizer as two threads.

`RINGLOG_SOAK=1` multiplies the amounts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.amounts import amount
from tests.support.cxx import build, run

HERE = Path(__file__).parent
SECONDS = amount(short=1, full=20)
STARTS_FACTOR = amount(short=1, full=20)
KILLED_WITHIN_S = amount(short=150, full=1500)


@pytest.mark.parametrize("capacity", [4096, 1 << 20])
def test_every_message_of_every_size_arrives_once_whole_and_in_order(capacity: int) -> None:
    seen = run(build(HERE / "ring_stream.cpp", "-O2"), "processes", SECONDS, 1, capacity)
    assert seen["messages"] > 4096 / 4  # at the small capacity: each size at least once
    assert seen["sleeps"] > 0


def test_two_threads_have_no_data_race() -> None:
    program = build(
        HERE / "ring_stream.cpp", "-O1", "-fsanitize=thread", "-Wno-tsan", name="ring_stream_tsan"
    )
    assert run(program, "threads", SECONDS, 2, 4096)["laps"] > 1


def test_no_wakeup_is_ever_lost() -> None:
    seen = run(build(HERE / "ring_doorbell.cpp", "-O2"), SECONDS, 3)
    assert seen["sleeps"] > 1000


def test_a_writer_killed_at_any_step_leaves_whole_messages_only() -> None:
    seen = run(
        build(HERE / "ring_kill.cpp", "-O1"), "writer", 8 * STARTS_FACTOR, 4, timeout_s=KILLED_WITHIN_S
    )
    assert seen["kills"] >= 1000
    assert seen["resume_ms"] < 1000


def test_a_reader_killed_at_any_step_loses_nothing_unreleased() -> None:
    seen = run(
        build(HERE / "ring_kill.cpp", "-O1"), "reader", 90 * STARTS_FACTOR, 5, timeout_s=KILLED_WITHIN_S
    )
    assert seen["kills"] >= 1000
    assert seen["resume_ms"] < 1000
