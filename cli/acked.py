"""What acknowledgements promise, over many records: the least of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

_ORDER = ("none", "received", "written", "flushed", "committed", "stable")
"""`none`: nobody answered, by wish."""


def least_durable(words: Iterable[str]) -> str:
    """The weakest of some promises; empty ones have not been made yet.

    >>> least_durable(["flushed", "written", ""]), least_durable([])
    ('written', '')
    """
    return min((word for word in words if word), key=_ORDER.index, default="")
