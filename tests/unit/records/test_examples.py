"""The examples in the docstrings of `ringlog.records` do what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import ringlog.records

MODULES = [f"ringlog.records.{module.name}" for module in pkgutil.iter_modules(ringlog.records.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
