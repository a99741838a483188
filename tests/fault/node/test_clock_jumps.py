"""Clock jumps of an hour either way: load does not notice, and nothing is deleted, expired or out of order."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.support.amounts import amount
from tests.support.clock import ShiftedClock
from tests.support.patience import stretched
from tests.support.trial import Trial

HOUR_S = 3600


@pytest.mark.timeout(3600)
def test_an_hour_forth_or_back_changes_nothing_for_those_who_produce_and_consume(tmp_path: Path):
    rng = random.Random("clock")
    clock = ShiftedClock(tmp_path)
    with Trial(tmp_path, environment=clock.environment()) as trial:
        with trial.load(rate=500) as load:
            load.wait_warm()
            for number in range(amount(short=3, full=50)):
                clock.jump_to(HOUR_S * (1 if number % 2 == 0 else -1))
                load.wait_writable(time.monotonic(), within_s=stretched(2.0))
                time.sleep(rng.uniform(0.1, 0.5))
            clock.jump_to(0)
            errors = [dict(worker.errors) for worker in [*load.producers, *load.consumers] if worker.errors]
            assert not errors, f"no session expires: {errors}"
        trial.judge(records_min=100)
