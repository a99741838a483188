"""Sends the load of one producer and times each chunk from when it was due to its acknowledgement."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cli.acked import least_durable
from cli.bench.pace import Pace
from cli.bench.report import Outcome
from ringlog.errors import RequestTimeout
from ringlog.limits import MIB

if TYPE_CHECKING:
    from ringlog import Producer
    from ringlog.client.futures import ManyFuture

IN_FLIGHT_BYTES_MAX = 16 * MIB
"""Enough that a node never waits for us; more would only be latency of our own buffer."""
ANSWER_TIMEOUT_S = 150.0
"""Longer than the producer's own delivery timeout, which speaks first."""
PROGRESS_S = 0.1

OnProgress = Callable[[Outcome], None]


class _Due:
    """A chunk on its way: when it was due, and when all of it was acknowledged."""

    __slots__ = ("acked_s", "count", "due_s", "future")

    def __init__(self, future: ManyFuture, count: int, due_s: float, clock: Callable[[], float]) -> None:
        self.future = future
        self.count = count
        self.due_s = due_s
        self.acked_s: float | None = None

        def stop_the_clock(_: ManyFuture) -> None:
            self.acked_s = clock()

        future.add_done_callback(stop_the_clock)


class Load:
    """One producer's share of a benchmark.

    Without a rate a chunk is due when it is handed over. With one it is due by the clock, whether or not we were
    ready then: what waits in front of a slow node counts.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        values: npt.NDArray[np.uint8],
        *,
        count: int | None,
        seconds: float | None,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._values = values
        self._value_bytes = values.shape[1]
        self._count = count
        self._seconds = seconds
        self._rate = rate
        self._clock = clock
        self._waiting: deque[_Due] = deque()
        self._waiting_max = max(IN_FLIGHT_BYTES_MAX // (len(values) * self._value_bytes), 2)
        self._sent = 0
        self.outcome = Outcome()

    def run(self, on_progress: OnProgress = lambda outcome: None) -> Outcome:
        """Send until the count or the time is up, and wait for every answer."""
        outcome, clock = self.outcome, self._clock
        outcome.began_s = now_s = clock()
        pace = Pace(self._rate, now_s)
        shown_s = now_s
        while not self._is_over(now_s):
            due = self._due(pace, now_s)
            if due:
                self._send(due, now_s if self._rate is None else pace.due_s(self._sent + due - 1))
                self._reap(0.0 if len(self._waiting) < self._waiting_max else None)
            else:
                # Wait for an answer rather than sleep: it is timed when it comes.
                self._reap(max(min(pace.due_s(self._sent + 1), self._over_s()) - now_s, 0.0))
            now_s = clock()
            if now_s - shown_s >= PROGRESS_S:
                shown_s = now_s
                on_progress(outcome)
        self._producer.flush(ANSWER_TIMEOUT_S)
        while self._waiting:
            self._reap(None)
        outcome.ended_s = clock()
        on_progress(outcome)
        return outcome

    def _is_over(self, now_s: float) -> bool:
        if self._count is not None and self._sent >= self._count:
            return True
        return now_s >= self._over_s()

    def _over_s(self) -> float:
        """When time is up."""
        return math.inf if self._seconds is None else self.outcome.began_s + self._seconds

    def _due(self, pace: Pace, now_s: float) -> int:
        due = pace.due_now(now_s, self._sent)
        most = len(self._values)
        if self._count is not None:
            most = min(most, self._count - self._sent)
        return most if due is None else min(due, most)

    def _send(self, count: int, due_s: float) -> None:
        values = self._values if count == len(self._values) else self._values[:count]
        future = self._producer.produce_many(self._topic, values)
        self._waiting.append(_Due(future, count, due_s, self._clock))
        self._sent += count

    def _reap(self, wait_s: float | None) -> None:
        """Take in the answers that are there, after waiting for the oldest: not at all, so long, or until it comes."""
        if not self._waiting:
            if wait_s:
                time.sleep(wait_s)
            return
        oldest = self._waiting[0].future
        if wait_s is None:
            oldest.exception(ANSWER_TIMEOUT_S)
        elif wait_s and not oldest.done():
            with suppress(RequestTimeout):
                oldest.exception(wait_s)
        outcome = self.outcome
        while self._waiting and self._waiting[0].future.done():
            due = self._waiting.popleft()
            words = {part.durability for part in due.future.result(0)}
            acked_s = due.acked_s if due.acked_s is not None else self._clock()
            outcome.latencies.add(max(acked_s - due.due_s, 0.0), due.count)
            outcome.records += due.count
            outcome.value_bytes += due.count * self._value_bytes
            outcome.durability = least_durable({outcome.durability, *words})
