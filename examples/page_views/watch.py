"""Watches a run twice a second: how much was produced, how much the queries have read, how far they are behind."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from examples.page_views.job import VIEWS
from ringlog.client.admin import Admin
from ringlog.model import TopicPartition

EVERY_S = 0.5


class Sample(NamedTuple):
    """One look."""

    at_s: float
    produced: int
    lags: dict[str, int]
    """By group: records of the topic that a query has not committed yet."""


class Watch:
    """A thread that looks until it is stopped."""

    def __init__(self, bootstrap: str, groups: list[str]) -> None:
        self.samples: list[Sample] = []
        self._bootstrap = bootstrap
        self._groups = groups
        self._ends: dict[int, int] = {}
        """Of each partition, as its leader told when it answered last."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        began_s = time.monotonic()
        with Admin(self._bootstrap) as admin:
            while not self._over.wait(EVERY_S):
                self.samples.append(self._look(admin, time.monotonic() - began_s))

    def _look(self, admin: Admin, at_s: float) -> Sample:
        # Offsets first: what is produced between the two looks counts as lag, never as read.
        read = {group: admin.group_offsets(group) for group in self._groups}
        parts = admin.describe_topic(VIEWS).partitions
        self._ends.update({part.index: part.readable_offset for part in parts if part.is_known})
        lags = {
            group: sum(
                end - (offsets[place].offset if (place := TopicPartition(VIEWS, index)) in offsets else 0)
                for index, end in self._ends.items()
            )
            for group, offsets in read.items()
        }
        return Sample(at_s, sum(self._ends.values()), lags)
