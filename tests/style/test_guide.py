"""The examples in docs/guide run, and show what they say."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

SPARK = "spark"
"""Runs among the tests of Spark, whose session it shares."""
PAGES = sorted(
    page
    for page in (Path(__file__).resolve().parents[2] / "docs" / "guide").glob("*.md")
    if page.stem != SPARK
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(page: Path):
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 0
    assert result.failed == 0
