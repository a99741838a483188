"""Gathers a producer's records into batches, per partition, within its buffer. Pure but for its lock.

Callers append; the I/O thread closes open batches and takes the ready ones. `None` for an append means that there is no
room: the shell waits, and tries again.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ringlog.client.futures import BatchState, Part, RecordFuture
from ringlog.client.many import Chunk, Rows
from ringlog.client.partition_queue import Batch, OpenBatch, PartitionQueue
from ringlog.client.settings import ProducerSettings
from ringlog.errors import InvalidRequest
from ringlog.limits import FRAME_BYTES_MAX
from ringlog.net.framing import HEADER_BYTES, Acks
from ringlog.net.messages import TopicMetadata
from ringlog.records.builder import NO_ROOM, NOT_FEW

BATCH_BYTES_MAX = FRAME_BYTES_MAX - HEADER_BYTES
"""A frame holds one batch."""


class TopicQueues:
    """The queues of one topic. `sticky` takes the records without a key, until it had its share."""

    def __init__(self, metadata: TopicMetadata, in_flight_max: int) -> None:
        self.name = metadata.name
        self.metadata = metadata
        self._in_flight_max = in_flight_max
        self.queues: list[PartitionQueue] = []
        """By partition. Only ever grows; replaced when there are fewer."""
        self.update(metadata)
        self.sticky = random.choice(self.queues)
        self._closed_before = 0
        """Bytes that the sticky queue had closed when its turn began."""

    def update(self, metadata: TopicMetadata) -> list[PartitionQueue]:
        """Partitions may have been added, have got other numbers or other leaders. Those that are elsewhere now."""
        moved: list[PartitionQueue] = []
        self.metadata = metadata
        if not metadata.partitions:
            raise InvalidRequest(f"topic '{metadata.name}' has no partitions")
        for known in sorted(metadata.partitions, key=lambda one: one.index):
            if known.index >= len(self.queues):
                self.queues.append(PartitionQueue(metadata.name, known, self._in_flight_max))
            elif self.queues[known.index].move(known):
                moved.append(self.queues[known.index])
        return moved

    def add(self, metadata: TopicMetadata) -> None:
        """Take partitions that were added. Where the others are by now is taken by `update`, on the I/O thread."""
        if metadata.topic_id == self.metadata.topic_id:
            for known in sorted(metadata.partitions, key=lambda one: one.index)[len(self.queues) :]:
                self.queues.append(PartitionQueue(metadata.name, known, self._in_flight_max))

    def drop_surplus(self) -> list[PartitionQueue]:
        """The queues of partitions that the topic has no more, since it was made anew with fewer."""
        count = len(self.metadata.partitions)
        surplus = self.queues[count:]
        if surplus:
            self.queues = self.queues[:count]  # another list: who chooses a partition counts and looks in one
            if self.sticky.index >= count:
                self.next_sticky()
        return surplus

    def queue(self, partition: int) -> PartitionQueue:
        """The queue of a partition that the caller named."""
        if type(partition) is not int:
            raise InvalidRequest(f"partition must be an int or None, not {partition!r}")
        if not 0 <= partition < len(self.queues):
            raise InvalidRequest(
                f"partition {partition!r}: topic '{self.name}' has 0 to {len(self.queues) - 1}; "
                "add more with `ringlog topic add-partitions`"
            )
        return self.queues[partition]

    def in_turn(self, batch_size: int) -> PartitionQueue:
        """The sticky partition; one that had its share, half a batch at least, is moved on from."""
        sticky = self.sticky
        if sticky.open is None and sticky.closed_bytes - self._closed_before >= batch_size // 2:
            return self.next_sticky()
        return sticky

    def next_sticky(self) -> PartitionQueue:
        """The next partition in turn, which is the one to use from here on."""
        self.sticky = self.queues[(self.sticky.index + 1) % len(self.queues)]
        self._closed_before = self.sticky.closed_bytes
        return self.sticky


class Accumulator:
    """The batches of all partitions, and the bytes that they hold."""

    def __init__(self, settings: ProducerSettings, check_may_wait: Callable[[], None] | None = None) -> None:
        """`check_may_wait` raises where nobody may wait for a batch."""
        self._check_may_wait = check_may_wait
        self._batch_size = settings.batch_size
        self._few_bytes = settings.few_bytes
        self._lingers = settings.linger_ms > 0
        self._buffer_memory = settings.buffer_memory
        self._delivery_timeout_s = settings.delivery_timeout_ms / 1000
        self.lock = threading.RLock()
        """Reentrant: a signal handler or a finalizer may produce while its thread is in here."""
        self._changed = threading.Condition(self.lock)
        """Batches were done, or room came free."""
        self._waiting = 0
        """Callers in `wait_for`. To notify costs something also when there is none."""
        self.bytes_held = 0
        """Of closed batches. Open ones grow to at most batch_size before they count."""
        self.unfinished: dict[BatchState, None] = {}
        """All batches that are not done, the oldest first."""
        self.touched: deque[PartitionQueue] = deque()
        """Queues in which something changed, for the I/O thread."""
        self.is_urgent = False
        """One of them should be looked at now, not only when the next answer comes. Set after it is touched; the I/O
        thread takes it back before it looks."""

    def append(
        self,
        topic: TopicQueues,
        queue: PartitionQueue | None,
        record: tuple[Any, Any, int | None, Any],
        acks: Acks,
        now_s: float,
    ) -> RecordFuture | None:
        """Append (value, key, timestamp, headers) to the open batch of a queue; without one, to that of the partition
        whose turn it is. None when the buffer has no room for another batch."""
        with self.lock:
            while True:
                to = topic.in_turn(self._batch_size) if queue is None else queue
                opened = self._opened(to, acks, now_s)
                if opened.state not in self.unfinished and not self.has_room():
                    return None
                future = opened.append(*record)
                if future is not None:
                    self._hold(to, opened)
                    return future
                self.close(to)

    def extend(
        self,
        topic: TopicQueues,
        queue: PartitionQueue | None,
        chunk: Chunk,
        rows: Rows,
        acks: Acks,
        now_s: float,
    ) -> Part | None:
        """Append a few records of columns, all to one batch, as `append` does. None when they are not few: they should
        be batches of their own. The caller has asked `has_room`."""
        with self.lock:
            while True:
                to = topic.in_turn(self._batch_size) if queue is None else queue
                opened = self._opened(to, acks, now_s)
                count = opened.builder.extend(
                    chunk.values,
                    chunk.keys,
                    chunk.headers,
                    timestamps=chunk.timestamps,
                    start=rows.start,
                    stop=rows.stop,
                    rows=rows.numbers,
                    bytes_most=self._few_bytes,
                )
                if count == NOT_FEW:
                    return None
                if count != NO_ROOM:
                    first = opened.builder.count - count
                    self._hold(to, opened)
                    return Part(opened.state, first, count)
                self.close(to)

    def _opened(self, queue: PartitionQueue, acks: Acks, now_s: float) -> OpenBatch:
        """The open batch of a queue, or one that will be it when it holds a record."""
        opened = queue.open
        if opened is not None:
            if opened.acks is acks:
                return opened
            self.close(queue)
        return OpenBatch(self.new_state(queue), acks, now_s, self._batch_size, BATCH_BYTES_MAX)

    def new_state(self, queue: PartitionQueue) -> BatchState:
        """Of a batch that will go to a queue."""
        return BatchState(queue.topic, queue.index, self._check_may_wait)

    def _hold(self, queue: PartitionQueue, opened: OpenBatch) -> None:
        if queue.open is opened or opened.state in self.unfinished:
            return
        while queue.open is not None:
            self.close(
                queue
            )  # opened by whoever produced while this thread was making the first record of ours
        queue.open = opened
        self.unfinished[opened.state] = None
        self.touched.append(queue)
        # A small one that comes soon after another waits for the answer to that, with which all that was touched is
        # looked at. One that grows meanwhile leaves then, or when it is full. Asked after it is open: an answer that
        # comes between finds it. With a linger a timer is to be set.
        is_few = opened.builder.nbytes < self._few_bytes
        if self._lingers or not is_few or queue.may_follow(opened.opened_s):
            self.is_urgent = True

    def close(self, queue: PartitionQueue, *, touch: bool = True) -> None:
        """Let the open batch of a queue take no more records. `touch`: the I/O thread is to look at it, as it does
        already when it closes one itself."""
        with self.lock:
            opened = queue.open
            if opened is None:
                return
            queue.open = None
            opened.state.count, held, opened.state.timestamps = opened.builder.close()
            deadline_s = opened.opened_s + self._delivery_timeout_s
            queue.ready.append(Batch(opened.state, opened.acks, deadline_s, held, opened.builder))
            self.bytes_held += held
            queue.closed_bytes += held
            if touch:
                self.touched.append(queue)
                self.is_urgent = True

    def put(
        self,
        queue: PartitionQueue,
        data: bytearray | memoryview,
        state: BatchState,
        acks: Acks,
        now_s: float,
        near_at: int = -1,
    ) -> None:
        """Add a batch that was made whole, behind those before it. The caller has asked `has_room`."""
        with self.lock:
            self.close(queue)
            held = len(data)
            queue.ready.append(
                Batch(state, acks, now_s + self._delivery_timeout_s, held, None, data, near_at)
            )
            self.unfinished[state] = None
            self.bytes_held += held
            self.touched.append(queue)
            self.is_urgent = True

    def has_room(self) -> bool:
        return self.bytes_held < self._buffer_memory

    def finished(self, batch: Batch) -> None:
        """A batch is done: its bytes are free, and those who wait are told."""
        with self.lock:
            self.bytes_held -= batch.bytes_held
            self.unfinished.pop(batch.state, None)
            if self._waiting:
                self._changed.notify_all()

    def wait_for(self, holds: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until something holds that batches which are done bring about; whether it does. Ctrl-C interrupts it."""
        with self.lock:
            self._waiting += 1  # before the first look
            try:
                return self._changed.wait_for(holds, timeout_s)
            finally:
                self._waiting -= 1

    def abandon(self) -> list[BatchState]:
        """Hold nothing any more; the batches that are not done, the oldest first."""
        with self.lock:
            left = list(self.unfinished)
            self.unfinished.clear()
            self.bytes_held = 0
            self._changed.notify_all()
        return left


__all__ = ["BATCH_BYTES_MAX", "Accumulator", "TopicQueues"]
