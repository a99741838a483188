"""The examples of docs/guide/spark.md run, and show what they say."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "spark.md"


def test_the_examples_of_the_page_run(spark):
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted > 20
    assert result.failed == 0
