"""SIGTERM under load: the node answers what is under way, leaves clean files, and goes on where it was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.amounts import cases, chance
from tests.support.checkers.disk import check_disk
from tests.support.checkers.violations import report
from tests.support.patience import stretched
from tests.support.trial import Trial


@pytest.mark.timeout(3600)
def test_a_stop_under_load_is_clean_and_a_new_start_goes_on(tmp_path: Path):
    rng = chance("stop")
    with Trial(tmp_path) as trial:
        with trial.load() as load:
            load.wait_warm()
            for _ in cases(short=2, full=50):
                time.sleep(rng.uniform(0.0, 0.3))
                assert trial.node.stop() == 0
                found = check_disk(trial.node.data_dir) + trial.node.watch.leaks(within_s=1)
                assert not found, report(found)
                started_at = time.monotonic()
                trial.node.start(wait=False)
                load.wait_writable(started_at, stretched(3.0))
                trial.node.wait_ready()
        trial.judge(records_min=100)
