"""How fast replicas that are being moved here may be filled: bytes a second, as a debt that time pays off. Pure.

What is fetched is known when it is there, so nothing is held back before: a partition that took its share is not asked
for until the debt is paid. Replicas that are in sync, or were before the move, are never asked later for it.
"""

from __future__ import annotations

from ringlog.limits import REPLICA_PARTITION_BYTES, THROTTLE_PIECE_BYTES_MIN

BURST_MS = 250
"""What was not used may be made up for, for so long."""
PIECES_PER_S = 4
"""A piece of what is moved is no more than one in so many of a second's bytes: one move does not take all at once."""


class Throttle:
    """One receiver's share of a rate. None: as fast as it goes."""

    def __init__(self) -> None:
        self.bytes_per_s: int | None = None
        self._free_ms = 0.0
        """When all that was taken is paid for."""

    def set(self, bytes_per_s: int | None, now_ms: int) -> None:
        """Another rate from now on: what is owed is owed at the new one."""
        if bytes_per_s == self.bytes_per_s:
            return
        before, self.bytes_per_s = self.bytes_per_s, bytes_per_s
        owed_ms = max(0.0, self._free_ms - now_ms)
        if before is None or bytes_per_s is None:
            self._free_ms = now_ms
        else:
            self._free_ms = now_ms + owed_ms * before / bytes_per_s

    @property
    def piece_bytes(self) -> int:
        """How much of a partition is to be asked for at a time."""
        if self.bytes_per_s is None:
            return REPLICA_PARTITION_BYTES
        fair = self.bytes_per_s // PIECES_PER_S
        return max(THROTTLE_PIECE_BYTES_MIN, min(REPLICA_PARTITION_BYTES, fair))

    def took(self, nbytes: int, now_ms: int) -> None:
        """So many bytes of moves came in."""
        if self.bytes_per_s is not None:
            self._free_ms = max(self._free_ms, now_ms - BURST_MS) + nbytes * 1000 / self.bytes_per_s

    def free_ms(self, now_ms: int) -> int:
        """When more may be asked for; not after now: at once.

        >>> throttle = Throttle()
        >>> throttle.set(1000, now_ms=0)
        >>> throttle.took(1000, now_ms=250)
        >>> throttle.free_ms(250)
        1000
        """
        return now_ms if self.bytes_per_s is None else max(now_ms, int(self._free_ms))
