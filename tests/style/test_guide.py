"""The examples in docs/guide run, and show what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.markdown import DOCS, bare_examples, run_examples

SPARK = "spark"
"""Runs among the tests of Spark, whose session it shares."""
PAGES = sorted(page for page in (DOCS / "guide").glob("*.md") if page.stem != SPARK)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(page: Path):
    result = run_examples(page)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_examples_stand_in_blocks_of_code(page: Path):
    assert bare_examples(page.read_text(encoding="utf-8")) == []
