"""Times records from their sending to their arrival: one at a time, or at a rate whatever happens (open loop)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cli.bench.pace import Pace
from cli.bench.report import Outcome
from ringlog.errors import RequestTimeout, RinglogError

if TYPE_CHECKING:
    from ringlog import Consumer, Producer

ARRIVAL_S = 30.0
PROGRESS_S = 0.1
NUMBER_BYTES = 8

OnProgress = Callable[[Outcome], None]


def numbered(value: bytes, number: int) -> bytes:
    """A value that tells its number.

    >>> number_of(numbered(b"x" * 20, 77)), len(numbered(b"x" * 20, 77))
    (77, 20)
    """
    return number.to_bytes(NUMBER_BYTES, "big") + value[NUMBER_BYTES:]


def number_of(value: bytes) -> int:
    return int.from_bytes(value[:NUMBER_BYTES], "big")


def one_at_a_time(
    producer: Producer,
    consumer: Consumer,
    topic: str,
    value: bytes,
    *,
    count: int | None,
    seconds: float | None,
    on_progress: OnProgress,
) -> Outcome:
    """Send a record when the last one has arrived. The consumer must stand at the end of the topic."""
    outcome = Outcome(began_s=time.monotonic())
    now_s = shown_s = outcome.began_s
    number = 0
    while (count is None or number < count) and (seconds is None or now_s - outcome.began_s < seconds):
        sent_s = time.monotonic()
        future = producer.produce(topic, numbered(value, number))
        deadline_s = sent_s + ARRIVAL_S
        arrived = False
        while not arrived:
            for record in consumer.poll(timeout_ms=1_000, max_records=100):
                arrived |= number_of(record.value or b"") == number
            now_s = time.monotonic()
            if not arrived and now_s > deadline_s:
                future.result(0)
                raise RequestTimeout(f"record {number} was sent and did not arrive within {ARRIVAL_S:.0f} s")
        _count(outcome, now_s - sent_s, len(value), future.result(ARRIVAL_S).durability)
        number += 1
        if now_s - shown_s >= PROGRESS_S:
            shown_s = now_s
            on_progress(outcome)
    outcome.ended_s = time.monotonic()
    return outcome


def at_a_rate(
    producer: Producer,
    consumer: Consumer,
    topic: str,
    value: bytes,
    *,
    rate: float,
    count: int | None,
    seconds: float | None,
    on_progress: OnProgress,
) -> Outcome:
    """Send by the clock from a thread of its own, receive here; each is timed from when it was due."""
    began_s = time.monotonic() + 0.05
    pace = Pace(rate, began_s)
    total = min(count or 2**62, int(seconds * rate) or 1 if seconds is not None else 2**62)
    sender = _Sender(producer, topic, value, pace, total)
    outcome = Outcome(began_s=began_s)
    shown_s = heard_s = began_s
    sender.start()
    try:
        while outcome.records < total:
            records = consumer.poll(timeout_ms=1_000, max_records=10_000)
            now_s = time.monotonic()
            for record in records:
                due_s = pace.due_s(number_of(record.value or b""))
                _count(outcome, max(now_s - due_s, 0.0), len(value), sender.durability)
            if records:
                heard_s = now_s
            if sender.failure is not None:
                raise sender.failure
            if now_s - max(heard_s, pace.due_s(outcome.records)) > ARRIVAL_S:
                raise RequestTimeout(f"{total - outcome.records} records did not arrive in {ARRIVAL_S:.0f} s")
            if now_s - shown_s >= PROGRESS_S:
                shown_s = now_s
                on_progress(outcome)
    finally:
        sender.stop()
    outcome.ended_s = time.monotonic()
    outcome.durability = sender.durability
    return outcome


class _Sender(threading.Thread):
    """Sends each record when it is due."""

    def __init__(self, producer: Producer, topic: str, value: bytes, pace: Pace, total: int) -> None:
        super().__init__(name="bench-sender", daemon=True)
        self._producer, self._topic, self._value = producer, topic, value
        self._pace, self._total = pace, total
        self._over = threading.Event()
        self.failure: RinglogError | None = None
        self.durability = ""

    def run(self) -> None:
        try:
            future = None
            for number in range(self._total):
                wait_s = self._pace.due_s(number) - time.monotonic()
                if wait_s > 0 and self._over.wait(wait_s):
                    return
                future = self._producer.produce(self._topic, numbered(self._value, number))
            if future is not None:
                self.durability = future.result(ARRIVAL_S).durability
        except RinglogError as failure:
            self.failure = failure

    def stop(self) -> None:
        self._over.set()
        self.join()


def _count(outcome: Outcome, latency_s: float, nbytes: int, durability: str) -> None:
    outcome.latencies.add(latency_s)
    outcome.records += 1
    outcome.value_bytes += nbytes
    outcome.durability = durability
