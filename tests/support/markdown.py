"""Reads tables out of the documents, so that tests can compare them with the code."""

from __future__ import annotations

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
