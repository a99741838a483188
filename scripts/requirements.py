"""Prints what ringlog and some of its extras depend on, for `pip install -r`. Usage: requirements.py [EXTRA …]

From pyproject.toml, so that nothing is built for it, and no index is asked for a package that has our name.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(project: dict[str, Any], extras: Iterable[str]) -> Iterator[str]:
    """What must be there for the project with these extras.

    >>> extras = {"spark": ["pyspark>=4"], "examples": ["matplotlib", "ringlog[spark]"]}
    >>> list(requirements({"dependencies": ["click"], "optional-dependencies": extras}, ["examples"]))
    ['click', 'matplotlib', 'pyspark>=4']
    """
    yield from project["dependencies"]
    for extra in extras:
        yield from _of_extra(project, extra)


def _of_extra(project: dict[str, Any], extra: str) -> Iterator[str]:
    for wanted in project["optional-dependencies"][extra]:
        other = re.fullmatch(r"ringlog\[(\w+)\]", wanted)
        if other is None:
            yield wanted
        else:
            yield from _of_extra(project, other[1])


if __name__ == "__main__":
    print(*requirements(tomllib.loads(PROJECT.read_text())["project"], sys.argv[1:]), sep="\n")
