"""Counts with their nouns, for sentences."""

from __future__ import annotations

from collections.abc import Iterable


def counted(count: int, what: str) -> str:
    """A count with its noun, given in the singular.

    >>> counted(1, "partition"), counted(1200, "record")
    ('1 partition', '1,200 records')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def node_list(nodes: Iterable[int]) -> str:
    """Ids of nodes, for a cell of a table.

    >>> node_list([2, 1, 3]), node_list([])
    ('2,1,3', 'none')
    """
    return ",".join(str(node) for node in nodes) or "none"
