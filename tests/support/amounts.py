"""How much of a fault row a run covers: a short, seeded part in `make test`, all of it in `make soak`."""

from __future__ import annotations

import os


def amount(short: int, full: int) -> int:
    """The number of cases to run.

    >>> amount(50, 500) in (50, 500)
    True
    """
    return full if os.environ.get("RINGLOG_SOAK") else short
