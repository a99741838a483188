"""When the logs that flush by interval are due. Pure, and its cost is that of the logs that are due."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from ringlog.log.partition import LogStatus, PartitionLog
from ringlog.model import TopicPartition


class FlushSchedule:
    """Logs with something to flush, by the time of their flush.

    >>> schedule = FlushSchedule()
    >>> schedule.plan(TopicPartition("a", 0), 50)
    >>> schedule.plan(TopicPartition("a", 0), 90)  # it was planned before that
    >>> schedule.next_due_ms, schedule.take_due(49)
    (50, [])
    >>> schedule.take_due(50), len(schedule), schedule.next_due_ms
    ([TopicPartition(topic='a', partition=0)], 0, None)
    """

    def __init__(self) -> None:
        self._due_ms: dict[TopicPartition, int] = {}
        self._heap: list[tuple[int, TopicPartition]] = []
        """Of all that were planned, the earliest first. What the dict does not say any more is passed over."""
        self._late: dict[TopicPartition, None] = {}
        """Those that were due while their write was under way. Its end is waited for, not a time."""

    def __len__(self) -> int:
        return len(self._due_ms) + len(self._late)

    @property
    def next_due_ms(self) -> int | None:
        """When a log is to be flushed, though nothing happens; None: there is none to wait for."""
        while self._heap and self._due_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def plan(self, name: TopicPartition, due_ms: int) -> None:
        """Have a log flushed at a time, unless it is to be flushed before."""
        planned = self._due_ms.get(name)
        if planned is None or due_ms < planned:
            self._due_ms[name] = due_ms
            heappush(self._heap, (due_ms, name))

    def forget(self, name: TopicPartition) -> None:
        """A log is not to be flushed any more."""
        self._due_ms.pop(name, None)
        self._late.pop(name, None)

    def flush_due(self, logs: Mapping[TopicPartition, PartitionLog], now_ms: int) -> None:
        """Flush the logs whose time has come."""
        for name in self.take_due(now_ms):
            log = logs[name]
            log.flush()
            interval_ms = log.settings.flush.interval_ms
            if (
                interval_ms is not None
                and log.status is LogStatus.OPEN
                and log.flushed_offset < log.next_offset
            ):
                # Later for what came since; or, while its write is still under way, as soon as that is done.
                if log.flushing:
                    self.plan(name, now_ms + interval_ms)
                else:
                    self._late[name] = None

    def take_due(self, now_ms: int) -> list[TopicPartition]:
        """The logs whose time has come. Who is not done with one plans it again."""
        due = [*self._late]
        self._late.clear()
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, name = heappop(self._heap)
            if self._due_ms.get(name) == due_ms:
                del self._due_ms[name]
                due.append(name)
        return due
