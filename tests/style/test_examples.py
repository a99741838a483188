"""The examples in docstrings and in the README run, and show what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cli
import perf
import ringlog
import tests.support
import tuning

ROOT = Path(__file__).resolve().parents[2]


def modules():
    for package in (ringlog, cli, perf, tuning, tests.support):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith(("._kernel", "__main__")):
                yield found.name


@pytest.mark.parametrize("name", sorted(modules()))
def test_the_examples_of_a_module_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples_at_all():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [t for name in modules() for t in finder.find(importlib.import_module(name)) if t.examples]
    assert len(found) > 40


def test_the_python_of_the_readme_prints_what_its_comments_say(tmp_path):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    done = subprocess.run(
        [sys.executable, "-c", code[1]], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    said = [line.split("#", 1)[1].split(":")[0].strip() for line in code[1].splitlines() if "print(" in line]
    assert done.stdout.splitlines() == said
