"""Virtual time: one queue of events, one source of chance, so that a seed says everything that will happen."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

Action = Callable[[], None]


class Scheduler:
    """Runs actions in the order of their time; those of the same time in the order in which they were planned.

    >>> scheduler, seen = Scheduler(seed=1), []
    >>> scheduler.after(5, lambda: seen.append("later"))
    >>> scheduler.after(2, lambda: seen.append("soon"))
    >>> scheduler.run_for(10)
    >>> seen, scheduler.now_ms
    (['soon', 'later'], 10)
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_ms: float = 0
        """The time that an outside observer sees: no machine of the cluster knows it."""
        self.random = random.Random(seed)
        self.events = 0
        self._queue: list[tuple[float, int, Action]] = []
        self._planned = 0

    def after(self, delay_ms: float, action: Action) -> None:
        """Run an action some time from now."""
        self._planned += 1
        heapq.heappush(self._queue, (self.now_ms + max(0, delay_ms), self._planned, action))

    def run_for(self, duration_ms: float) -> None:
        """Let this much time pass."""
        until_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            self.events += 1
            action()
        self.now_ms = until_ms

    def run_until(self, condition: Callable[[], bool], *, within_ms: float, step_ms: float = 10) -> bool:
        """Let time pass until the condition holds; False when it did not within the time given."""
        until_ms = self.now_ms + within_ms
        while not condition():
            if self.now_ms >= until_ms:
                return False
            self.run_for(step_ms)
        return True

    def chance(self, probability: float) -> bool:
        """Whether something that happens with this probability happens now."""
        return self.random.random() < probability
