"""How much of a fault row a run covers: a short, seeded part in `make test`, all of it in `make soak`.

`RINGLOG_SOAK=1` asks for the full amounts, `RINGLOG_SOAK=2/5` for the second fifth of those that are done one after the
other: a row that takes an hour can be run in pieces, each with chances of its own.
"""

from __future__ import annotations

import os
import random
import re
from typing import NamedTuple


class _Piece(NamedTuple):
    """Of a full amount: the whole is piece 1 of 1."""

    number: int
    of: int


def _piece() -> _Piece | None:
    asked = os.environ.get("RINGLOG_SOAK")
    if not asked:
        return None
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", asked)
    if found is None:
        return _Piece(1, 1)
    piece = _Piece(int(found[1]), int(found[2]))
    if piece.number > piece.of:
        raise ValueError(f"RINGLOG_SOAK={asked}: there is no such piece")
    return piece


def amount(short: int, full: int) -> int:
    """How large, long or many something is, whatever the piece.

    >>> amount(50, 500) in (50, 500)
    True
    """
    return full if _piece() else short


def cases(short: int, full: int) -> range:
    """The numbers of the cases to run, one after the other: in a piece, its share of the full amount.

    >>> len(cases(3, 200)) in range(1, 201)
    True
    """
    piece = _piece()
    if piece is None:
        return range(short)
    return range(full * (piece.number - 1) // piece.of, full * piece.number // piece.of)


def chance(row: str) -> random.Random:
    """What happens in a row by chance: always the same in the short run and the full one, another in each piece.

    >>> chance("kill").random() == chance("kill").random()
    True
    """
    piece = _piece()
    if piece is None or piece.of == 1:
        return random.Random(row)
    return random.Random(f"{row} {piece.number}/{piece.of}")
