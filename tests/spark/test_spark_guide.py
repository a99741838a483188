"""The examples of docs/guide/spark.md run, and show what they say."""

from __future__ import annotations

from tests.support.markdown import DOCS, run_examples


def test_the_examples_of_the_page_run(spark):
    result = run_examples(DOCS / "guide" / "spark.md")
    assert result.attempted > 20
    assert result.failed == 0
