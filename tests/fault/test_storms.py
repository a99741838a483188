"""Storms: reads, rolls, truncations, removals, failing calls, full disks and power losses, all at once."""

from __future__ import annotations

import pytest

from tests.support.amounts import cases
from tests.support.storm import Storm

FOUND = (130, 555, 924, 944)
"""Seeds beyond the first that once found something: files that are cut while compaction reads them, recovery
points of an old life, old segments that were not deleted in order."""


@pytest.mark.parametrize("seed", sorted({*cases(short=40, full=1_000), *FOUND}))
def test_a_storm_loses_nothing_flushed_serves_nothing_wrong_and_leaks_nothing(seed):
    storm = Storm(seed)
    for _ in range(150):
        storm.step()
    storm.finish()
    assert storm.checked > 0
