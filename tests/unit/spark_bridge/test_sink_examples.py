"""The examples in the sink's docstrings run, and show what they say."""

from __future__ import annotations

import doctest

import pytest

from spark_bridge import epochs, sink_options


@pytest.mark.parametrize("module", [epochs, sink_options], ids=lambda module: module.__name__)
def test_the_examples_of_a_module_run(module):
    ran = doctest.testmod(module)
    assert ran.attempted > 0
    assert ran.failed == 0
