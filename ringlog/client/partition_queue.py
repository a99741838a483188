"""Batches of one partition on their way: open, ready, in flight, failed; what may leave when. Pure: now is an argument.

    open ──full, linger over, flush──▶ ready ──▶ in flight ──▶ done
                                         ▲            │ retriable error
                                         │            ▼
                                         └── reset ── failed ── all in flight answered ──▶ in flight, in order

Idempotence. A batch gets its sequence when it first leaves. While one is in doubt (it failed, and may be in the log),
nothing that follows it leaves under another number, so the node's check keeps order and refuses repeats. Under a
new producer id the first batch travels alone: a node takes any sequence from a producer that it does not know.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from ringlog.client.cluster_view import NO_LEADER, node_of
from ringlog.client.futures import BatchState, RecordFuture
from ringlog.errors import DeliveryTimeout, OutOfOrderSequence, RinglogError, check
from ringlog.limits import PRODUCER_BATCHES_KEPT
from ringlog.net.framing import Acks
from ringlog.net.messages import PartitionMetadata
from ringlog.net.session import ANY_NODE
from ringlog.records.builder import BatchBuilder

SEQUENCE_COUNT = 2**31
"""Sequences go round after this many."""
FEW_IN_FLIGHT_MAX = 3
"""A small batch waits for an answer where so many are in flight."""
FEW_APART_S = 0.0005
"""It does so, too, if the last of them left less than this before it was begun: more will follow as soon."""
FEW_ANSWERED_S = 0.005
"""And if the first of them is not answered for this long: the node would gain nothing by more requests."""
_NO_DATA = memoryview(b"")


class ProducerId(NamedTuple):
    """What a node knows a producer by."""

    number: int
    epoch: int


@dataclass(slots=True, eq=False)
class Batch:
    """A batch that takes no more records."""

    state: BatchState
    acks: Acks
    deadline_s: float
    """When its records fail."""
    bytes_held: int
    """What it takes of the producer's buffer."""
    builder: BatchBuilder[RecordFuture] | None
    """Until it first leaves; None for one that was made whole."""
    data: bytearray | memoryview = _NO_DATA
    """Behind HEADROOM bytes; empty while the builder has it."""
    near_at: int = -1
    """Where it lies in the producer's `NearMemory`, if it does."""
    order: int = -1
    """Its place among the batches of the queue, given when it first leaves."""
    sequence: int = -1
    """-1: it never left, or certainly is not in the log and may get another number."""
    in_doubt: bool = False
    """It left, and whether it is in the log is not known."""
    attempts: int = 0
    left_s: float = 0.0
    """When it left last."""
    error: RinglogError | None = None


class OpenBatch:
    """A batch that still grows."""

    __slots__ = ("acks", "append", "builder", "opened_s", "state")

    def __init__(
        self, state: BatchState, acks: Acks, opened_s: float, bytes_target: int, bytes_max: int
    ) -> None:
        self.state = state
        self.acks = acks
        self.opened_s = opened_s
        self.builder = BatchBuilder(RecordFuture, state, bytes_target=bytes_target, bytes_max=bytes_max)
        self.append = self.builder.append


class PartitionQueue:
    """The batches of one partition, in order. Everything but `open` and `ready` belongs to the I/O thread."""

    def __init__(self, topic: str, place: PartitionMetadata, in_flight_max: int) -> None:
        self.topic = topic
        self.index = place.index
        self.partition = place.partition
        """The id that frames carry; another one after the topic was made anew."""
        self.node = node_of(place)
        """Who leads it; ANY_NODE without a cluster."""
        self.lost = False
        """It proved wrong that this node leads, and who does is not known yet."""
        self._leader_epoch = place.leader_epoch
        self.gone: RinglogError | None = None
        """The topic was deleted, which is why all that comes here fails."""
        self.moving = False
        """It is led elsewhere now: what is under way to the old leader is answered before anything leaves."""
        self.open: OpenBatch | None = None
        self.ready: deque[Batch] = deque()
        self.closed_bytes = 0
        """Of all batches that grew here, ever."""
        self.in_flight: list[Batch] = []
        self.failed: list[Batch] = []
        self.retry_at_s = 0.0
        self.failures = 0
        """In a row, since the last success: the exponent of the back-off."""
        self.producer: ProducerId | None = None
        self.timer_s: float | None = None
        self._in_flight_max = in_flight_max
        self._next_sequence = 0
        self._next_order = 0
        self._proven = False
        """The node has taken a batch under this producer id."""
        self._spoiled = False
        """A number was given to a batch that failed for good: those behind it would wait for it forever."""

    def __len__(self) -> int:
        return len(self.ready) + len(self.in_flight) + len(self.failed) + (self.open is not None)

    def move(self, place: PartitionMetadata) -> bool:
        """Take where the partition is served now. True: elsewhere, so that what failed there may leave at once."""
        found = (place.partition, node_of(place), place.leader_epoch)
        if found == (self.partition, self.node, self._leader_epoch):
            return False
        self.partition, self.node, self._leader_epoch = found
        self.lost = self.lost and self.node == NO_LEADER
        self.retry_at_s, self.failures = 0.0, 0
        if self.node != ANY_NODE:
            # A leader that does not know this producer takes any sequence: it must meet the first batch first.
            self._proven = False
            self.moving = bool(self.in_flight)
        return True

    # -- what leaves -----------------------------------------------------------------------------------------

    def resend(self, now_s: float) -> list[Batch]:
        """The failed batches that leave again now, in order; none while answers are due or the back-off lasts."""
        if not self.failed or self.in_flight or now_s < self.retry_at_s:
            return []
        again = self.failed
        if self._spoiled:
            # What is in doubt is settled under its old number: taken, repeated, or refused as out of order.
            again = [batch for batch in self.failed if batch.in_doubt]
            if not again:
                self._reset()
                return []
        elif not self._proven and self.failed[0].sequence >= 0:
            again = self.failed[:1]
        self.failed = [batch for batch in self.failed if batch not in again]
        self.in_flight = list(again)
        return again

    def next_to_send(self, idempotent: bool) -> Batch | None:
        """The ready batch that may leave now, in flight from here on; None when none may."""
        if self.failed or not self.ready:
            return None
        batch = self.ready[0]
        numbered = idempotent and batch.acks is not Acks.NONE
        if not self._may_leave(numbered, batch.order if batch.order >= 0 else self._next_order):
            return None
        self.ready.popleft()
        if batch.order < 0:
            batch.order = self._next_order
            self._next_order += 1
        if numbered:
            batch.sequence = self._next_sequence
            self._next_sequence = (self._next_sequence + batch.state.count) % SEQUENCE_COUNT
        self.in_flight.append(batch)
        return batch

    def wants_open(self, idempotent: bool, few_bytes: int) -> bool:
        """Whether the open batch should leave now: closing it delays nothing and costs no growth.

        While another is in flight, one of fewer than `few_bytes` waits for the answer, and grows: where many small
        sends follow each other, a request carries all that came during the last one. Where they come one by one, each
        goes by itself (`may_follow`).
        """
        if self.open is None or self.ready or self.failed:
            return False
        if self.open.builder.nbytes < few_bytes and not self.may_follow(self.open.opened_s):
            return False
        return self._may_leave(idempotent and self.open.acks is not Acks.NONE, self._next_order)

    def may_follow(self, opened_s: float) -> bool:
        """Whether a small batch that was begun then need not wait for those in flight. From any thread."""
        ahead = self.in_flight[:]
        if not ahead:
            return True
        first_s, last_s = ahead[0].left_s, ahead[-1].left_s
        return (
            len(ahead) < FEW_IN_FLIGHT_MAX
            and opened_s - last_s >= FEW_APART_S
            and opened_s - first_s <= FEW_ANSWERED_S
        )

    def _may_leave(self, numbered: bool, order: int) -> bool:
        self.moving = self.moving and bool(self.in_flight)
        if self.moving:
            return False
        if not numbered:
            return len(self.in_flight) < self._in_flight_max
        if self.producer is None or self._spoiled:
            return False
        if len(self.in_flight) >= (self._in_flight_max if self._proven else 1):
            return False
        # A node remembers so many batches. Were more to follow one that is in doubt, the node would have forgotten it
        # when it comes again, and refuse it as out of order although it stands in the log.
        if not self.in_flight:
            return True
        oldest = min([batch.order for batch in self.in_flight])
        return order - oldest < PRODUCER_BATCHES_KEPT

    # -- what came of it -------------------------------------------------------------------------------------

    def taken(self, batch: Batch) -> None:
        """The node has the batch."""
        self.in_flight.remove(batch)
        self.failures = 0
        self.lost = False
        if batch.sequence >= 0 and not self.moving:
            self._proven = True

    def refused(self, batch: Batch, error: RinglogError, retry_at_s: float) -> None:
        """An attempt failed, and another may follow."""
        oldest = batch.order == min(other.order for other in (*self.failed, *self.in_flight))
        self.in_flight.remove(batch)
        batch.error = error
        if isinstance(error, OutOfOrderSequence):
            # The node looked at it and did not append it, nor had it before.
            batch.in_doubt = False
            if oldest:
                # All before it are acknowledged: the node's memory of this producer is not ours any more.
                self._spoiled = True
        else:
            batch.in_doubt = batch.sequence >= 0
        self.failed.append(batch)
        self.failed.sort(key=lambda one: one.order)
        self.retry_at_s = max(self.retry_at_s, retry_at_s)

    def given_up(self, batch: Batch) -> None:
        """The batch fails for good, out of flight, failed or ready."""
        for place in (self.in_flight, self.failed, self.ready):
            if batch in place:
                place.remove(batch)
        if batch.sequence >= 0:
            self._spoiled = True
        if self._spoiled and not self.failed and not self.in_flight:
            self._reset()

    def expired(self, now_s: float) -> list[Batch]:
        """Batches past their deadline that are not in flight. Their owner gives them up."""
        late = [batch for batch in self.failed if batch.deadline_s <= now_s]
        for i in range(len(self.ready)):
            if self.ready[i].deadline_s > now_s:
                break
            late.append(self.ready[i])
        return late

    def next_time_s(self, linger_s: float) -> float | None:
        """When something here may happen by time alone."""
        times = [batch.deadline_s for batch in (*self.failed[:1], *([self.ready[0]] if self.ready else []))]
        if self.failed and not self.in_flight:
            times.append(self.retry_at_s)
        if self.open is not None:
            times.append(self.open.opened_s + linger_s)
        return min(times, default=None)

    def _reset(self) -> None:
        """Nothing is in doubt: what certainly is not in the log gets numbers of a new producer."""
        check(not self.in_flight, "a queue is reset when all answers are in")
        check(not any(batch.in_doubt for batch in self.failed), "a batch in doubt keeps its number")
        for batch in self.failed:
            batch.sequence = -1
        self.ready.extendleft(reversed(self.failed))
        self.failed = []
        self.producer = None
        self._next_sequence = 0
        self._proven = False
        self._spoiled = False


def delivery_timeout(batch: Batch, timeout_s: float) -> RinglogError:
    """What a batch fails with that was not acknowledged in time; its last error is the reason."""
    where = f"{batch.state.topic}-{batch.state.partition}"
    why = "" if batch.error is None else f"; the last attempt: {batch.error}"
    error = DeliveryTimeout(f"{where}: not acknowledged within {timeout_s:.3g} s{why}")
    error.__cause__ = batch.error
    return error
