"""The values that a benchmark sends. Pure: the same for a seed, half of each compressible, as real records are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def make_values(count: int, size: int, seed: int = 1) -> npt.NDArray[np.uint8]:
    """`count` values of `size` bytes, one row each: letters in the first half, a pattern that repeats in the second.

    >>> values = make_values(3, 100)
    >>> values.shape, len({value.tobytes() for value in values})
    ((3, 100), 3)
    """
    random = np.random.default_rng(seed)
    rows = np.empty((count, size), dtype=np.uint8)
    half = (size + 1) // 2
    rows[:, :half] = random.integers(ord("a"), ord("z") + 1, (count, half), dtype=np.uint8)
    rows[:, half:] = np.resize(np.frombuffer(b"ringlog bench ", dtype=np.uint8), size - half)
    return rows
