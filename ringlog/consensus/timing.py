"""How long a quorum waits, and by how much voters differ in it. Pure: the spread is computed, not drawn."""

from __future__ import annotations

from typing import NamedTuple

_MASK = 2**64 - 1


class Timing(NamedTuple):
    """The times of a quorum, in milliseconds of each voter's own clock."""

    election_ms: float = 500.0
    """Silence of this length, and up to twice that, makes a voter ask for an election; a leader that does not hear a
    majority for this long steps down."""
    beat_ms: float = 100.0
    """How often a leader speaks when it has nothing to say."""


def jitter_ms(node_id: int, epoch: int, attempt: int, spread_ms: float) -> float:
    """How much longer than the others a voter waits this time: less than the spread, evenly, and not twice the same.

    >>> jitter_ms(1, 4, 1, 100) != jitter_ms(2, 4, 1, 100)
    True
    """
    mixed = (node_id * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + attempt * 0x94D049BB133111EB) & _MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & _MASK
    return (mixed ^ (mixed >> 31)) / 2**64 * spread_ms
