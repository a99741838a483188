"""Segments of replicas that the device does not give any more: once is bad luck, a second later still is a hole."""

from __future__ import annotations

from ringlog.limits import UNREADABLE_MS, UNREADABLE_WITHIN_MS
from ringlog.log.events import ReadRefused
from ringlog.model import TopicPartition
from ringlog.shard.hosting import HostedPartition


class UnreadableSegments:
    """Those of one shard."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, tuple[int, int]] = {}
        """Of each partition: the base offset of a segment, and when a read of it was first refused. Others have their
        turn after it."""

    def refused(self, hosted: HostedPartition, event: ReadRefused, now_ms: int) -> None:
        """A read of a segment was refused, at a monotonic time. Nothing comes of it where nobody else is in sync: what
        is refused for good would be lost then, and a device may recover. Readers go on trying."""
        if hosted.replica is None or not hosted.replica.is_spared:
            return
        base_offset, since_ms = self._since.get(hosted.name, (-1, -UNREADABLE_WITHIN_MS))
        if now_ms - since_ms >= UNREADABLE_WITHIN_MS:
            self._since[hosted.name] = event.base_offset, now_ms
        elif base_offset == event.base_offset and now_ms - since_ms >= UNREADABLE_MS:
            del self._since[hosted.name]
            event.refuse()
