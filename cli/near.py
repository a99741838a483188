"""Finds the names that somebody who mistyped one may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NAMES_MAX = 3


def near_names(wrong: str, known: Iterable[str]) -> list[str]:
    """The known names that look like a wrong one, the nearest first.

    >>> near_names("lgo", ["log", "demo"]), near_names("xyz", ["log"])
    (['log'], [])
    """
    by_folded: dict[str, str] = {}
    for name in known:
        by_folded.setdefault(name.casefold(), name)
    found = difflib.get_close_matches(wrong.casefold(), by_folded, NAMES_MAX, cutoff=0.6)
    return [by_folded[name] for name in found]


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """A question that names the nearest, or nothing.

    >>> did_you_mean("ordres", ["orders", "payments", "orders-eu"])
    "Did you mean 'orders' or 'orders-eu'?"
    >>> did_you_mean("xyz", ["orders"])
    ''
    """
    near = [repr(name) for name in near_names(wrong, known)]
    if not near:
        return ""
    *first, last = near
    return f"Did you mean {', '.join(first)} or {last}?" if first else f"Did you mean {last}?"
