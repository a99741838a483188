"""When the next piece of a load is due. Pure: takes the time, never sleeps.

Open loop: what is due does not move because an answer was late, so a stall shows in every latency behind it.
"""

from __future__ import annotations


class Pace:
    """Gives records a time at a constant rate; without a rate, all are due at once.

    >>> pace = Pace(rate=1000.0, began_s=50.0)
    >>> pace.due_s(500), pace.due_now(50.25, done=100)
    (50.5, 150)
    """

    def __init__(self, rate: float | None, began_s: float) -> None:
        self._rate = rate
        self._began_s = began_s

    def due_s(self, record: int) -> float:
        """When the record with this number is due; without a rate, at the very beginning."""
        return self._began_s if self._rate is None else self._began_s + record / self._rate

    def due_now(self, now_s: float, done: int) -> int | None:
        """How many records behind the first `done` ones are due by now; None: as many as one likes."""
        if self._rate is None:
            return None
        # Half a record of tolerance: a clock that is read a hair before its time is not early.
        return max(int((now_s - self._began_s) * self._rate + 0.5) - done, 0)
