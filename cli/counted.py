"""Counts with their nouns, for sentences."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """A count with its noun, given in the singular.

    >>> counted(1, "partition"), counted(1200, "record")
    ('1 partition', '1,200 records')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
