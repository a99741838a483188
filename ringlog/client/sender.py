"""Decides what a producer sends, when, and what becomes of the answers. Pure: now is an argument, effects are returned.

One thread calls it. It looks only at queues that were touched or whose time has come.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from ringlog.client.accumulator import Accumulator
from ringlog.client.futures import NO_DURABILITY, NO_OFFSET
from ringlog.client.metadata import LOOK_AGAIN
from ringlog.client.partition_queue import Batch, PartitionQueue, ProducerId, delivery_timeout
from ringlog.client.settings import ProducerSettings
from ringlog.errors import (
    OutOfOrderSequence,
    Overloaded,
    PartitionBusy,
    PartitionFenced,
    RequestTimeout,
    RinglogError,
    ShardUnavailable,
    StaleMetadata,
)
from ringlog.model import Durability
from ringlog.net.framing import Acks
from ringlog.net.messages import ProduceReply
from ringlog.net.session import ANY_NODE
from ringlog.records.builder import seal_for

_LOOK_AGAIN = (*LOOK_AGAIN, ShardUnavailable, PartitionFenced, RequestTimeout)
_NOT_TAKEN = (PartitionBusy, Overloaded, StaleMetadata)
"""What these refuse is certainly not in the log."""
_TIMERS_SPARE = 64
"""Timers that count no more which are kept, beside one for each queue, before they are cleared away."""
_DURABILITY_WORDS = {int(one): one.name.lower() for one in Durability}

Send = tuple[PartitionQueue, Batch]
"""A batch to send to the partition of its queue, its data sealed."""


class Sender:
    """The duty of a producer's I/O thread."""

    def __init__(
        self, settings: ProducerSettings, accumulator: Accumulator, jitter: Callable[[], float] = lambda: 1.0
    ) -> None:
        self._accumulator = accumulator
        self._jitter = jitter
        self._idempotent = settings.is_idempotent
        self._codec = settings.codec
        self._level = settings.compression_level
        self._linger_s = settings.linger_ms / 1000
        self._few_bytes = settings.few_bytes
        self._delivery_timeout_s = settings.delivery_timeout_ms / 1000
        self._backoff_s = settings.retry_backoff_ms / 1000
        self._backoff_max_s = settings.retry_backoff_max_ms / 1000
        self._attempts_max = settings.retries + 1
        self._timers: list[tuple[float, int, PartitionQueue]] = []
        """A heap. Of each queue the timer that its `timer_s` names, and perhaps later ones, which count no more."""
        self._queues_timed = 0
        """Queues that have a timer."""
        self._ties = itertools.count()
        self._producer: ProducerId | None = None
        self._waiting: dict[PartitionQueue, None] = {}
        """Queues that need a producer id."""
        self.flushing = 0
        """Callers that wait in flush: nothing lingers."""
        self.stale: set[str] = set()
        """Topics whose metadata proved wrong; the shell takes them."""

    @property
    def needs_producer(self) -> bool:
        """Whether the shell must ask for a producer id."""
        return bool(self._waiting) and self._producer is None

    def step(self, now_s: float) -> list[Send]:
        """What to send now, in order."""
        sends: list[Send] = []
        due: dict[PartitionQueue, None] = {}
        self._accumulator.is_urgent = False
        touched = self._accumulator.touched
        for _ in range(len(touched)):
            due[touched.popleft()] = None
        while self._timers and self._timers[0][0] <= now_s:
            at_s, _, queue = heapq.heappop(self._timers)
            if queue.timer_s == at_s:  # else an earlier one took its place
                queue.timer_s = None
                self._queues_timed -= 1
                due[queue] = None
        for queue in due:
            self._serve(queue, now_s, sends)
        return sends

    def next_time_s(self) -> float | None:
        """When `step` has something to do by time alone; touches are told by waking."""
        return self._timers[0][0] if self._timers else None

    def _serve(self, queue: PartitionQueue, now_s: float, sends: list[Send]) -> None:
        if queue.gone is not None:
            self._accumulator.close(queue, touch=False)
            for batch in (*queue.failed, *queue.ready):
                self._give_up(queue, batch, queue.gone)
            return
        if queue.open is not None and now_s >= queue.open.opened_s + self._delivery_timeout_s:
            self._accumulator.close(queue, touch=False)
        if queue.failed or queue.ready:
            for batch in queue.expired(now_s):
                self._give_up(queue, batch, delivery_timeout(batch, self._delivery_timeout_s))
        if queue.failed:
            before = queue.producer
            for batch in queue.resend(now_s):
                self._leave(queue, batch, now_s, sends)
            self._retire(before, queue)
        if self._idempotent and queue.producer is None and (queue.ready or queue.open):
            queue.producer = self._producer
            if queue.producer is None:
                self._waiting[queue] = None
        few_bytes = 0 if self.flushing else self._few_bytes
        while queue.ready or queue.open is not None:
            next_batch = queue.next_to_send(self._idempotent) if queue.ready else None
            if next_batch is not None:
                self._leave(queue, next_batch, now_s, sends)
            elif self._lingered(queue, now_s) and queue.wants_open(self._idempotent, few_bytes):
                self._accumulator.close(queue, touch=False)
            else:
                break
        if queue.failed or queue.ready or queue.open is not None:
            self._set_timer(queue, now_s)

    def _lingered(self, queue: PartitionQueue, now_s: float) -> bool:
        opened = queue.open
        return opened is not None and (
            self.flushing > 0 or self._linger_s <= 0 or now_s >= opened.opened_s + self._linger_s
        )

    def _leave(self, queue: PartitionQueue, batch: Batch, now_s: float, sends: list[Send]) -> None:
        if batch.builder is not None:
            batch.data = batch.builder.finish(self._codec, self._level)
            batch.builder = None
        if batch.attempts:
            # The socket, or the node, may still be reading what was sent before.
            batch.data, batch.near_at = bytearray(batch.data), -1
        if batch.attempts == 0 or not batch.in_doubt:
            producer = queue.producer if batch.sequence >= 0 else None
            number, epoch = (-1, -1) if producer is None else producer
            seal_for(batch.data, number, epoch, batch.sequence)
        batch.attempts += 1
        batch.left_s = now_s
        sends.append((queue, batch))

    def _set_timer(self, queue: PartitionQueue, now_s: float) -> None:
        at_s = queue.next_time_s(self._linger_s)
        if at_s is None:
            return
        # One that is overdue waits for an answer or a producer id, which touch the queue: look once in a while.
        at_s = max(at_s, now_s + (0.001 if at_s > now_s else 0.05))
        if queue.timer_s is None or at_s < queue.timer_s:
            self._queues_timed += queue.timer_s is None
            queue.timer_s = at_s
            heapq.heappush(self._timers, (at_s, next(self._ties), queue))
            if len(self._timers) > 2 * self._queues_timed + _TIMERS_SPARE:
                # Those whose place was taken are two minutes ahead, as a delivery timeout is: they would gather.
                self._timers = [timer for timer in self._timers if timer[2].timer_s == timer[0]]
                heapq.heapify(self._timers)

    # -- answers ---------------------------------------------------------------------------------------------

    def let_go(self, batch: Batch) -> None:
        """A batch with acks=0 has left: its owner does not wait for more, the next batches do."""
        if not batch.state.done:
            batch.state.resolve(NO_OFFSET, NO_DURABILITY)

    def on_reply(self, queue: PartitionQueue, batch: Batch, reply: ProduceReply) -> None:
        """The node has a batch."""
        queue.taken(batch)
        if not batch.state.done:
            word = _DURABILITY_WORDS.get(reply.durability, str(reply.durability))
            batch.state.resolve(reply.base_offset, word, reply.append_time_ms)
        self._accumulator.finished(batch)
        self._accumulator.touched.append(queue)

    def on_error(self, queue: PartitionQueue, batch: Batch, error: RinglogError, now_s: float) -> None:
        """An attempt failed. The error's own word says whether another can help."""
        if queue.gone is not None:
            self._give_up(queue, batch, queue.gone)
            return
        if isinstance(error, _LOOK_AGAIN):
            self.stale.add(queue.topic)
            queue.lost = queue.node != ANY_NODE
        again = error.retriable or (isinstance(error, OutOfOrderSequence) and batch.sequence >= 0)
        if batch.acks is Acks.NONE:
            again = isinstance(
                error, _NOT_TAKEN
            )  # at most once: what may be in the log does not go there again
        queue.failures += 1
        backoff_s = min(self._backoff_s * 2 ** min(queue.failures - 1, 20), self._backoff_max_s)
        if isinstance(error, OutOfOrderSequence) or queue.moving:
            backoff_s = 0.0  # the batch before it has the back-off; a new leader was not asked yet
        if not again or batch.attempts >= self._attempts_max:
            self._give_up(queue, batch, error)
        else:
            queue.refused(batch, error, now_s + backoff_s * self._jitter())
            if batch.deadline_s <= now_s:
                self._give_up(queue, batch, delivery_timeout(batch, self._delivery_timeout_s))
        self._accumulator.touched.append(queue)

    def on_producer(self, producer: ProducerId) -> None:
        """A producer id came: queues that wait for one take it."""
        self._producer = producer
        self._accumulator.touched.extend(self._waiting)
        self._waiting.clear()

    def on_topic_gone(self, queues: list[PartitionQueue], error: RinglogError) -> None:
        """A topic was deleted: what is on its way there, and what a caller still adds, fails. What is in flight is
        answered first: the node may have taken it before."""
        for queue in queues:
            queue.gone = error
        self._accumulator.touched.extend(queues)

    def fail_all(self, queues: list[PartitionQueue], error: RinglogError) -> None:
        """The client closes, or its I/O thread died: nothing more will leave, and every future is told why."""
        for queue in queues:
            with self._accumulator.lock:
                self._accumulator.close(queue)
                queue.in_flight, queue.failed = [], []
                queue.ready.clear()
        # All that is unfinished, also what a bug has lost between two queues.
        for state in self._accumulator.abandon():
            state.fail(error)

    def _give_up(self, queue: PartitionQueue, batch: Batch, error: RinglogError) -> None:
        before = queue.producer
        queue.given_up(batch)
        batch.state.fail(error)
        self._accumulator.finished(batch)
        self._retire(before, queue)

    def _retire(self, before: ProducerId | None, queue: PartitionQueue) -> None:
        """A queue that dropped its producer id must not be given the same one again."""
        if before is not None and queue.producer is None and self._producer == before:
            self._producer = None
