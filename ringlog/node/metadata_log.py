"""The metadata log of a cluster with one voter: a partition like any other, replayed whole at start.

The quorum will stand behind the same three calls: replay(), append() and poll().
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ringlog.controller.commands import METADATA_TOPIC
from ringlog.controller.records import MetadataRecord, decode_record, encode_record
from ringlog.errors import ControllerUnavailable, RinglogError
from ringlog.limits import MIB
from ringlog.log.batch import batch_infos
from ringlog.log.events import Fenced, Progress
from ringlog.log.jobs import run_now
from ringlog.log.names import partition_dir
from ringlog.log.removal import set_dir_aside
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from ringlog.records.decode import decode
from ringlog.records.encode import encode
from ringlog.records.scan import check

_log = logging.getLogger(__name__)

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)


class MetadataLog:
    """Appends records, and says when they are flushed."""

    def __init__(self, store: LogStore, *, now_ms: int) -> None:
        self._store = store
        self._log = store.open(METADATA_PARTITION, now_ms=now_ms)
        self._waiting: deque[tuple[int, Callable[[int], None]]] = deque()
        self.failed: RinglogError | None = None
        """Why the log takes nothing any more: its process must start anew."""

    def replay(self) -> Iterator[tuple[int, MetadataRecord]]:
        """All records, each with the version that it makes."""
        offset = self._log.log_start_offset
        while offset < self._log.readable_offset:
            with self._store.read_now(METADATA_PARTITION, offset, 1 * MIB) as slices:
                data = slices.tobytes()
                offset = slices.next_offset
            for record in decode(data):
                if record.value is not None:
                    yield record.offset + 1, decode_record(record.value)

    def append(
        self, records: Sequence[MetadataRecord], flushed: Callable[[int], None], *, now_ms: int
    ) -> int:
        """Append, and return the new version; `flushed` is called with it when the records survive power loss."""
        if self.failed is not None:
            raise ControllerUnavailable(f"the metadata log failed: {self.failed}")
        batch = encode([encode_record(record) for record in records], timestamps=now_ms)
        infos = batch_infos(check(batch))
        appended = self._store.append(METADATA_PARTITION, memoryview(batch), infos, now_ms=now_ms)
        version = appended.last_offset + 1
        self._waiting.append((version, flushed))
        return version

    def when_flushed(self, then: Callable[[], None]) -> None:
        """Call when all that was appended so far is flushed; now, if it is."""
        if self._waiting:
            self._waiting.append((self._waiting[-1][0], lambda _version: then()))
        else:
            then()

    def set_aside(self, name: TopicPartition) -> None:
        """Rename a directory that was left by a topic that is gone: its shard died before it could."""
        path = partition_dir(self._store.root, name)
        aside = run_now(self._store.disk, set_dir_aside(self._store.disk, path))
        if aside is not None:
            _log.warning("%s was left of a deleted topic; it is deleted at the next start", aside)

    def poll(self, *, now_ms: int, wait_s: float) -> None:
        """Let the disk work, wait for it or a doorbell, and tell those whose records are flushed."""
        for event in self._store.run(now_ms=now_ms, wait_s=wait_s):
            if isinstance(event, Fenced):
                self.failed = event.error
            elif isinstance(event, Progress):
                while self._waiting and self._waiting[0][0] <= self._log.flushed_offset:
                    version, flushed = self._waiting.popleft()
                    flushed(version)

    def close(self, *, now_ms: int) -> None:
        self._store.close(now_ms=now_ms)
