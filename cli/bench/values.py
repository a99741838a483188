"""The values that a benchmark sends. Pure: the same for a seed, half of each compressible, as real records are."""

from __future__ import annotations

import numpy as np


def make_values(count: int, size: int, seed: int = 1) -> list[bytes]:
    """`count` values of `size` bytes: letters in the first half, a pattern that repeats in the second.

    >>> values = make_values(3, 100)
    >>> [len(value) for value in values], len(set(values))
    ([100, 100, 100], 3)
    """
    random = np.random.default_rng(seed)
    rows = np.empty((count, size), dtype=np.uint8)
    half = (size + 1) // 2
    rows[:, :half] = random.integers(ord("a"), ord("z") + 1, (count, half), dtype=np.uint8)
    rows[:, half:] = np.resize(np.frombuffer(b"ringlog bench ", dtype=np.uint8), size - half)
    data = rows.tobytes()
    return [data[at : at + size] for at in range(0, count * size, size)]
