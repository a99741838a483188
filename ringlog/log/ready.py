"""The logs of a shard that may have something to write, and how much of it may be under way at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringlog.disk.api import Disk
from ringlog.model import TopicPartition

if TYPE_CHECKING:
    from ringlog.log.partition import PartitionLog


class ReadyLogs:
    """Logs wait here for the next cycle; with a depth, also while so many calls are in flight. What a log that waits
    receives meanwhile joins its next write."""

    def __init__(self, disk: Disk, depth: int = 0) -> None:
        """`depth`: calls in flight beyond which no log begins a write; 0: no bound."""
        self._disk = disk
        self._depth = depth
        self.logs: dict[TopicPartition, PartitionLog] = {}
        """Those that wait, in the order in which they came."""

    def mark(self, log: PartitionLog) -> None:
        """Have it pumped in the next cycle."""
        self.logs[log.name] = log

    def forget(self, name: TopicPartition) -> None:
        self.logs.pop(name, None)

    def pump(self, now_ms: int) -> None:
        """Let each begin its next write. Those beyond the depth keep their places, before any that come later; a call
        that is in flight completes, and with it comes the next pump, so none waits for ever."""
        ready, self.logs = self.logs, {}
        if not self._depth:
            for log in ready.values():
                log.pump(now_ms)
            return
        waiting: dict[TopicPartition, PartitionLog] = {}
        for name, log in ready.items():
            if self._disk.in_flight < self._depth:
                log.pump(now_ms)
            else:
                waiting[name] = log
        if waiting:
            self.logs = waiting | self.logs
