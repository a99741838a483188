"""The examples in the docstrings of the Spark bridge run. Those of other packages do so without Spark."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import spark_bridge

NAMES = [found.name for found in pkgutil.iter_modules(spark_bridge.__path__, "spark_bridge.")]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_module_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
