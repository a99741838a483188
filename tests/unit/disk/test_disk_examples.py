"""The examples in the docstrings run."""

from __future__ import annotations

import doctest

import pytest

from ringlog.disk import choose, files, memory, os_files
from tests.support import fake_disk, fake_disk_faults


@pytest.mark.parametrize("module", [choose, files, memory, os_files, fake_disk, fake_disk_faults])
def test_the_examples_run(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
