"""Reads tables and examples out of the documents, so that tests can compare them with the code."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def tables(text: str, heading: str) -> list[list[list[str]]]:
    """The tables between a heading and the next of any level: rows of cells, the first row being the names.

    >>> tables("# A\\n| x | y |\\n| --- | --- |\\n| 1 | 2 |\\n## B\\n", "A")
    [[['x', 'y'], ['1', '2']]]
    """
    section = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.DOTALL | re.MULTILINE)
    assert section is not None, f"no heading {heading!r}"
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", section[1], re.MULTILINE):
        names, _rule, *rows = table.splitlines()
        found.append([[cell.strip() for cell in line.strip("|").split("|")] for line in (names, *rows)])
    return found


class _FencedExamples(doctest.DocTestParser):
    """Takes the line that ends a block of code for the end of an example's output, and not for a part of it."""

    def parse(self, string: str, name: str = "<string>") -> list[str | doctest.Example]:
        return super().parse(re.sub(r"^```.*$", "", string, flags=re.MULTILINE), name)


def run_examples(page: Path) -> doctest.TestResults:
    """Run the examples of a page."""
    return doctest.testfile(str(page), module_relative=False, encoding="utf-8", parser=_FencedExamples())


def bare_examples(text: str) -> list[str]:
    """Examples that stand in no block of code: a page would show them as quotations.

    >>> bare_examples("```pycon\\n>>> 1\\n```\\n>>> 2\\n")
    ['>>> 2']
    """
    blocks = f"\n{text}".split("\n```")[::2]
    return [line for block in blocks for line in block.splitlines() if line.startswith(">>>")]
