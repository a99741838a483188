"""What set-up installs: all that pyproject.toml names, and never a package of our own name from an index."""

from __future__ import annotations

import doctest
import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("requirements", ROOT / "scripts" / "requirements.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_of_the_script_is_true(script):
    assert doctest.testmod(script).attempted > 0
    assert doctest.testmod(script).failed == 0


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_an_extra_brings_all_that_it_names_and_nothing_of_our_name(script, extra):
    found = list(script.requirements(PROJECT, [extra]))
    named = [name for name in PROJECT["optional-dependencies"][extra] if not name.startswith("ringlog")]
    assert set(found) >= {*PROJECT["dependencies"], *named}
    assert not [name for name in found if name.startswith("ringlog")]
