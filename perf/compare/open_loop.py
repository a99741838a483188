"""A load that does not wait: records are sent when they are due, and each carries the moment that it was due.

A sender that falls behind sends late records at once; their lateness counts, since it began when they were due.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perf.compare.clients.api import STAMP_BYTES, Receiver, Sender
from perf.compare.payload import Payload

SILENCE_S = 20.0
COUNT_SILENCE_S = 2.0
LEAD_S = 0.2
"""From the word to go until the first record is due: the consumer waits by then."""


class Plan(NamedTuple):
    """Records in equal bursts at equal distances.

    >>> plan = Plan(100, 10, rate_per_s=4000, bursts_per_s=1000)
    >>> plan.burst_records, plan.bursts, plan.due_s(2)
    (4, 3, 0.002)
    """

    record_bytes: int
    records: int
    rate_per_s: float
    bursts_per_s: float

    @property
    def burst_records(self) -> int:
        return max(round(self.rate_per_s / self.bursts_per_s), 1)

    @property
    def bursts(self) -> int:
        return -(-self.records // self.burst_records)

    def due_s(self, burst: int) -> float:
        """When a burst is due, after the first. Slow rates have less than a burst's distance between records."""
        return burst * self.burst_records / self.rate_per_s


def send(sender: Sender, plan: Plan, payload: Payload) -> float:
    """Send all of a plan; the seconds from the first due moment until all is acknowledged."""
    values = payload.pool[: plan.burst_records]
    if len(values) < plan.burst_records:
        values = np.resize(payload.pool, (plan.burst_records, plan.record_bytes))
    first_ns = time.monotonic_ns() + int(LEAD_S * 1e9)
    for burst in range(plan.bursts):
        due_ns = first_ns + int(plan.due_s(burst) * 1e9)
        wait_until(due_ns)
        count = min(plan.burst_records, plan.records - burst * plan.burst_records)
        stamped = values[:count].copy()
        stamped[:, :STAMP_BYTES] = np.frombuffer(due_ns.to_bytes(STAMP_BYTES, "little"), dtype=np.uint8)
        sender.send(stamped)
    sender.finish()
    return (time.monotonic_ns() - first_ns) / 1e9


def wait_until(due_ns: int) -> None:
    """Sleep to just before a moment. Never spins: on few cores that would take one from the broker."""
    while (left_ns := due_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)


def receive(receiver: Receiver, records: int) -> npt.NDArray[np.float64]:
    """Take records as they come; how long each took, in milliseconds. Raises when no more come."""
    waits: list[npt.NDArray[np.float64]] = []
    seen = 0
    silent_since = time.monotonic()
    while seen < records:
        due_ns = receiver.receive_stamps(0.1)
        now_ns = time.monotonic_ns()
        if not len(due_ns):
            if time.monotonic() - silent_since > SILENCE_S:
                raise TimeoutError(f"{seen} of {records} records came, then none for {SILENCE_S:.0f} s")
            continue
        silent_since = time.monotonic()
        seen += len(due_ns)
        waits.append((now_ns - due_ns) / 1e6)
    return np.concatenate(waits)


def count(receiver: Receiver, records: int) -> int:
    """How many of the records come before a silence: without acknowledgements, some may never have arrived."""
    seen, silent_since = 0, time.monotonic()
    while seen < records and time.monotonic() - silent_since < COUNT_SILENCE_S:
        came = len(receiver.receive_stamps(0.1))
        if came:
            seen, silent_since = seen + came, time.monotonic()
    return seen


def percentiles(waits_ms: npt.NDArray[np.float64]) -> dict[str, float]:
    """Without the first tenth, in which clients connect and everything warms up.

    >>> percentiles(np.append(np.full(111, 9e9), np.arange(1001.0)))["p99_ms"]
    990.0
    """
    waits_ms = waits_ms[len(waits_ms) // 10 :]
    p50_ms, p99_ms, p999_ms = (float(found) for found in np.percentile(waits_ms, [50, 99, 99.9]))
    return {"p50_ms": p50_ms, "p99_ms": p99_ms, "p999_ms": p999_ms, "max_ms": float(waits_ms.max())}
