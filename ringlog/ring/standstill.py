"""Which processes of a node stand still: those whose loops have made no pass for a session. Pure.

A loop that has nothing to do wakes every half second all the same, so its count of passes on the stats page is a sign
of life. Only time during which somebody looked counts: who stood still too, with the whole machine perhaps, has seen
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringlog.limits import BROKER_SESSION_MS


class StandstillWatch:
    """Compares counts of passes with those of the last look.

    >>> passes = [7, 7]
    >>> watch = StandstillWatch(lambda: passes, look_ms=500)
    >>> watch.look(0), watch.look(500)
    ([], [])
    >>> passes = [7, 8]
    >>> watch.look(1000)
    [0]
    """

    def __init__(
        self, passes: Callable[[], Sequence[int]], *, look_ms: float, still_ms: float = BROKER_SESSION_MS
    ) -> None:
        """`passes`: how many each process has made; `look_ms`: between two looks, while the looker runs as it should;
        `still_ms`: a process without a pass for so long stands still."""
        self._passes = passes
        self._look_ms = look_ms
        self._still_ms = still_ms
        self._seen: Sequence[int] = ()
        self._quiet_ms: list[float] = []
        """For how long each has made no pass."""
        self._at_ms = 0.0

    def look(self, now_ms: float) -> list[int]:
        """Look again; which of them stand still."""
        gap_ms, self._at_ms = min(now_ms - self._at_ms, self._look_ms), now_ms
        seen, self._seen = self._seen, list(self._passes())
        if len(seen) != len(self._seen):
            self._quiet_ms = [0.0] * len(self._seen)
        else:
            self._quiet_ms = [
                quiet_ms + gap_ms if before == now else 0.0
                for quiet_ms, before, now in zip(self._quiet_ms, seen, self._seen, strict=True)
            ]
        return [at for at, quiet_ms in enumerate(self._quiet_ms) if quiet_ms >= self._still_ms]
