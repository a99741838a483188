"""What may be chosen for all logs of a shard together: how much goes to the disk at once, and ahead of need."""

from __future__ import annotations

from typing import NamedTuple

from ringlog.limits import PREALLOCATE_BYTES_MAX, WRITE_BYTES_TARGET


class ShardBounds(NamedTuple):
    """The defaults suit a fast disk of its own; `ringlog tune` measures what suits this one."""

    disk_depth: int = 0
    """Calls in flight beyond which no partition begins a write; 0: no bound."""
    group_bytes: int = WRITE_BYTES_TARGET
    """A write takes no further append once it has so many bytes. Never above the default: recovery relies on it."""
    preallocate_bytes_max: int = PREALLOCATE_BYTES_MAX
    """Space that a partition reserves ahead at most."""
