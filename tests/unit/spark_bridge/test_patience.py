"""How long a query waits for a node: retried while that can help, never longer than it was told, never in vain."""

from __future__ import annotations

import pytest

from ringlog.errors import ShardUnavailable, StaleMetadata, UnknownTopic
from spark_bridge.patience import patiently


class Clock:
    """Time that passes only when somebody sleeps or an attempt takes some."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def ask(attempts, patience_s, takes_s=0.0):
    """Ask until the attempts, errors or an answer, are used up: the answer, the timeouts, how long it took."""
    clock, timeouts = Clock(), []

    def attempt(timeout_s):
        timeouts.append(timeout_s)
        clock.sleep(min(takes_s, timeout_s))
        found = attempts.pop(0) if len(attempts) > 1 else attempts[0]
        if isinstance(found, Exception):
            raise found
        return found

    try:
        answer = patiently(attempt, patience_s, clock=clock, sleep=clock.sleep)
    except (StaleMetadata, ShardUnavailable, UnknownTopic) as error:
        answer = error
    return answer, timeouts, clock.now_s - 1000.0


def test_errors_of_a_restart_are_outlasted():
    answer, timeouts, took_s = ask([StaleMetadata("closed"), ShardUnavailable("dead"), 42], 60)
    assert answer == 42
    assert len(timeouts) == 3
    assert took_s < 1


def test_an_error_without_hope_is_raised_at_once():
    answer, timeouts, _ = ask([UnknownTopic("no such topic"), 42], 60)
    assert isinstance(answer, UnknownTopic)
    assert len(timeouts) == 1


@pytest.mark.parametrize("takes_s", [0.0, 15.0, 500.0])
def test_when_the_patience_is_over_the_last_error_is_raised_and_not_later(takes_s):
    answer, timeouts, took_s = ask([ShardUnavailable("dead")], 60, takes_s)
    assert isinstance(answer, ShardUnavailable)
    assert 58 < took_s <= 60
    assert max(timeouts) <= 20
    assert len(timeouts) > 2, "an attempt that nobody answers does not use up all patience"
