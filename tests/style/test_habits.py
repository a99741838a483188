"""Habits of this code base that a machine can see."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ringlog import limits

ROOT = Path(__file__).resolve().parents[2]
TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split()
PYTHON = sorted(name for name in TRACKED if name.endswith(".py") and (ROOT / name).exists())
NATIVE = sorted(name for name in TRACKED if name.endswith((".cpp", ".hpp")) and (ROOT / name).exists())


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_there_is_something_to_look_at():
    assert len(PYTHON) > 100
    assert len(NATIVE) > 20


@pytest.mark.parametrize("name", PYTHON)
def test_a_python_file_says_its_job_in_its_first_line(name):
    first = text_of(name).split("\n", 1)[0]
    assert first.startswith(('"""', "#!", 'r"""')), "the first line is a docstring"


@pytest.mark.parametrize("name", NATIVE)
def test_a_native_file_says_its_job_in_its_first_line(name):
    assert text_of(name).startswith("//")


@pytest.mark.parametrize("name", [name for name in PYTHON if not name.startswith("tests/")])
def test_a_file_has_one_job(name):
    assert text_of(name).count("\n") <= 500, "look for the second job in it"


@pytest.mark.parametrize("name", PYTHON)
def test_no_error_is_swallowed_and_nothing_is_left_for_later(name):
    text = text_of(name)
    assert not re.search(r"except[^:\n]*:\s*\n?\s*pass\b", text)
    marks = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"))
    assert not re.search(rf"\b({marks})\b", text)
    for node in ast.walk(ast.parse(text)):
        assert not (isinstance(node, ast.ExceptHandler) and node.type is None), "a bare except"


def test_every_bound_is_used():
    used = Counter(word for name in [*PYTHON, *NATIVE] for word in re.findall(r"\w+", text_of(name)))
    for bound in (name for name in vars(limits) if name.isupper()):
        assert used[bound] > 1, f"nobody keeps to {bound}"


def test_every_error_says_what_it_means():
    tree = ast.parse(text_of("ringlog/errors.py"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            assert ast.get_docstring(node), node.name


def test_the_package_shows_its_public_names_and_no_others():
    import ringlog

    assert dir(ringlog) == ["Admin", "Consumer", "Producer", "__version__", "embedded", "errors"]
    assert all(hasattr(ringlog, name) for name in dir(ringlog))
