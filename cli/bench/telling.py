"""Tells what a benchmark does and has found: a bar, the figures, and, after Ctrl-C, the figures so far."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cli.bench.plan import Plan
from cli.bench.report import Outcome, figures, people_text, speed_text
from cli.invocation import pasteable
from cli.output import print_json
from cli.screen import progress_bar
from ringlog.errors import InvalidRequest

OnProgress = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Telling:
    """What is told of one benchmark, and how."""

    what: str
    plan: Plan
    partitions: int
    latency_of: str
    as_json: bool

    @contextmanager
    def measuring(self, count: int | None, durability: str = "") -> Iterator[OnProgress]:
        """A bar for what is measured, up to so many records. Ctrl-C prints the figures so far."""
        latest: list[Outcome] = []
        try:
            with bar(count, self.plan.seconds) as show:

                def on_progress(outcome: Outcome) -> None:
                    latest[:] = [outcome]
                    show(outcome)

                yield on_progress
        except KeyboardInterrupt:
            for outcome in latest:
                if outcome.records:
                    durability = outcome.durability or durability
                    now_s = time.monotonic()
                    so_far = dataclasses.replace(outcome, ended_s=now_s, durability=durability)
                    self.print(so_far, interrupted=True)
            raise

    @contextmanager
    def naming_topic_if_interrupted(self) -> Iterator[None]:
        """Say after Ctrl-C that the topic is still there."""
        try:
            yield
        except KeyboardInterrupt:
            self.name_topic()
            raise

    def name_topic(self) -> None:
        """Say that the topic is kept, and how to be rid of it."""
        if not self.as_json:
            delete = pasteable("topic", "delete", self.plan.topic)
            print(f"Topic {self.plan.topic} is kept: `{delete}` frees its space.", file=sys.stderr)

    def print(self, outcome: Outcome, **extra: Any) -> None:
        """Print the figures; InvalidRequest when there are none."""
        if outcome.records == 0:
            raise InvalidRequest("no record was done in that time. Give it more --seconds.")
        plan = self.plan
        found = figures(
            self.what,
            outcome,
            topic=plan.topic,
            record_size=plan.record_size,
            partitions=self.partitions,
            producers=plan.producers,
            acks=plan.acks,
            codec=plan.codec,
            rate=plan.rate,
            **extra,
        )
        if self.as_json:
            print_json(found)
        else:
            sys.stdout.write(people_text(found, self.latency_of))
        sys.stdout.flush()


@contextmanager
def bar(count: int | None, seconds: float | None) -> Iterator[OnProgress]:
    """A bar that is full when the count is reached, or the time when only that ends it."""
    by_time = count is None
    with progress_bar(seconds if by_time else count) as update:

        def show(outcome: Outcome) -> None:
            now_s = time.monotonic()
            update(now_s - outcome.began_s if by_time else outcome.records, speed_text(outcome, now_s))

        yield show
