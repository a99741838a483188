"""The partitions that a consumer reads: whose turn it is, who may be asked for, and what went wrong. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from ringlog.client.assigned import UNKNOWN, Assigned, Place
from ringlog.client.consumer_settings import ConsumerSettings
from ringlog.client.metadata import LOOK_AGAIN
from ringlog.errors import OffsetOutOfRange, RinglogError
from ringlog.model import TopicPartition
from ringlog.net.session import ANY_NODE

_REPLIES_AHEAD = 2
"""Full replies kept per partition: one that is being polled, and the next."""
_LEADER_AGAIN_S = 0.1
_LEADER_SOON = 16
"""In a cluster, so many tries wait no longer than this: another node leads soon when one dies."""


class Assignment:
    """Partitions, and the three queues that they wait in. Not thread-safe: its owner has a lock."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.assigned: dict[TopicPartition, Assigned] = {}
        self.waiting: dict[Assigned, None] = {}
        """Those that may have something to ask for, the oldest first; no others need be looked at."""
        self.sated: set[Assigned] = set()
        """Those of which enough was fetched, until some of it is polled."""
        self._ready: deque[Assigned] = deque()
        """Those that have something for the poller; the first has its turn."""
        self._standing: dict[Assigned, None] = {}
        """Those with a failure that the poller was told; the next to be raised first."""
        self.buffered_bytes = 0

    # -- the poller's side -----------------------------------------------------------------------------------

    def assign(self, wanted: Mapping[TopicPartition, tuple[Place, int | None]]) -> None:
        """Read exactly these. One that was assigned before and has no offset here goes on where it is, unless its topic
        was made anew since: that is another one."""
        for tp in [tp for tp, known in self.assigned.items() if not _is_same(known, wanted.get(tp))]:
            gone = self.assigned.pop(tp)
            self.drop(gone)
            self.waiting.pop(gone, None)
        for tp, (place, offset) in wanted.items():
            known = self.assigned.get(tp)
            if known is not None and offset is None:
                continue
            if known is None:
                known = self.assigned[tp] = Assigned(tp, place)
                if offset is None:
                    self.out_of_range(known, OffsetOutOfRange(f"{tp} has no position. Seek to one"))
            if offset is not None:
                self.seek(tp, offset)
            self.waiting[known] = None

    def __getitem__(self, tp: TopicPartition) -> Assigned:
        return self.assigned[tp]

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self.assigned

    def assignment(self) -> list[TopicPartition]:
        return list(self.assigned)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read on from an offset; what was fetched from elsewhere is dropped, also when it is still on its way."""
        assigned = self.assigned[tp]
        self.drop(assigned)
        assigned.stand_at(offset)
        self.waiting[assigned] = None

    def seek_to(self, end: int, *tps: TopicPartition) -> None:
        """Read on from an end of the log, EARLIEST or LATEST, which is looked up."""
        for assigned in map(self.assigned.__getitem__, tps):
            self.drop(assigned)
            assigned.position, assigned.reset = UNKNOWN, end
            self.waiting[assigned] = None

    def seek_all(self, positions: Mapping[TopicPartition, int]) -> None:
        for tp, offset in positions.items():
            self.seek(tp, offset)

    def pause(self, *tps: TopicPartition) -> None:
        for tp in tps:
            self.assigned[tp].paused = True
        self._hunger()

    def resume(self, *tps: TopicPartition) -> None:
        for assigned in map(self.assigned.__getitem__, tps):
            assigned.paused = False
            self.enqueue(assigned)
            self.waiting[assigned] = None

    def head(self, now_s: float, *, may_raise: bool = True) -> Assigned | None:
        """Whose turn it is: a partition that has a chunk. Raises what went wrong with one that has a failure, unless
        the poller has records in its hands, and gives None instead."""
        while self._ready:
            assigned = self._ready[0]
            if assigned.chunks and not assigned.paused:
                return assigned
            failure = assigned.failure
            if failure is not None and not assigned.failure_told and not assigned.paused:
                if not may_raise:
                    return None
                self._leave_queue()
                if assigned.position == UNKNOWN and assigned.reset is None:
                    self.enqueue(assigned)  # only a seek can help
                else:
                    assigned.failure_told = True
                    self._standing[assigned] = None
                    self.back_off(assigned, now_s)
                raise failure.with_traceback(None)
            self._leave_queue()
        return None

    def raise_standing(self) -> None:
        """The poller found nothing: raise what keeps records of a partition from it, in turns when there are several.
        Nobody takes for a quiet topic what is none."""
        for assigned in list(self._standing):
            failure = assigned.failure
            if failure is None or not assigned.failure_told:
                del self._standing[assigned]  # it is over, or told anew in its turn
            elif not assigned.paused:
                del self._standing[assigned]
                self._standing[assigned] = None
                raise failure.with_traceback(None)

    def advance(self, assigned: Assigned, position: int) -> bool:
        """The poller took what lies below a position. True: something may be asked for that could not before."""
        chunk = assigned.chunks[0]
        assigned.position = position
        if position < chunk.next_offset:
            return False
        assigned.chunks.popleft()
        assigned.buffered_bytes -= chunk.nbytes
        was_full = self.full
        self.buffered_bytes -= chunk.nbytes
        self._leave_queue()
        self.enqueue(assigned)
        self.sated.discard(assigned)
        made_room = was_full and not self.full
        if made_room:
            self._hunger()
        if not assigned.in_flight:
            self.waiting[assigned] = None
        return made_room or not assigned.in_flight

    def refetch(self, assigned: Assigned, now_s: float) -> None:
        """What was fetched is not what it should be: drop it, and ask again from the poller's position."""
        self.drop(assigned)
        assigned.stand_at(assigned.position)
        self.back_off(assigned, now_s)

    def unsettled(self, tps: Iterable[TopicPartition]) -> bool:
        """Some of these wait for their position; those that were given up do not. Raises what keeps one from it."""
        unsettled = False
        for assigned in [self.assigned[tp] for tp in tps if tp in self.assigned]:
            if assigned.position == UNKNOWN and assigned.reset is not None:
                if assigned.failure is not None:
                    raise assigned.failure
                unsettled = True
        return unsettled

    # -- the side of requests --------------------------------------------------------------------------------

    def fly(self, assigned: Assigned) -> None:
        assigned.in_flight = True
        self.waiting.pop(assigned, None)

    def land(self, assigned: Assigned) -> None:
        assigned.in_flight = False
        self.waiting[assigned] = None

    @property
    def full(self) -> bool:
        return self.buffered_bytes >= self.settings.fetch_max_bytes

    @property
    def hungry(self) -> bool:
        """Less is buffered than half of what may be: whoever polls fast could soon find nothing."""
        settings = self.settings
        ahead = _REPLIES_AHEAD * settings.max_partition_fetch_bytes * len(self.assigned)
        return 2 * self.buffered_bytes <= min(settings.fetch_max_bytes, ahead)

    def has_enough(self, assigned: Assigned) -> bool:
        return assigned.buffered_bytes >= _REPLIES_AHEAD * self.settings.max_partition_fetch_bytes

    def drop(self, assigned: Assigned) -> None:
        self.buffered_bytes -= assigned.outdate()
        self._hunger()

    def _hunger(self) -> None:
        """There is room again: look anew who could use it."""
        self.waiting.update(dict.fromkeys(self.sated))
        self.sated.clear()

    def enqueue(self, assigned: Assigned) -> None:
        if not assigned.queued and (assigned.chunks or assigned.failure is not None):
            assigned.queued = True
            self._ready.append(assigned)

    def _leave_queue(self) -> None:
        self._ready.popleft().queued = False

    # -- what went wrong ---------------------------------------------------------------------------------------

    def went_wrong(self, assigned: Assigned, error: RinglogError, now_s: float) -> None:
        if isinstance(error, LOOK_AGAIN):
            if assigned.misplaced:
                self.back_off(assigned, now_s)  # it was the look that failed
            assigned.misplaced = True
            self.waiting[assigned] = None
        elif isinstance(error, OffsetOutOfRange):
            self.out_of_range(assigned, error)
        elif error.retriable:
            self.back_off(assigned, now_s)
        else:
            assigned.fail(error)
            self.enqueue(assigned)

    def out_of_range(self, assigned: Assigned, error: OffsetOutOfRange) -> None:
        """There is nothing at the position: the setting says what to do, once what was fetched before is polled."""
        assigned.reset = self.settings.reset
        if assigned.reset is None:
            assigned.fail(error)
            self.enqueue(assigned)
        self.waiting[assigned] = None

    def back_off(self, assigned: Assigned, now_s: float) -> None:
        settings = self.settings
        most_s = settings.retry_backoff_max_ms / 1000
        if assigned.place.node != ANY_NODE and assigned.retries < _LEADER_SOON:
            most_s = min(most_s, _LEADER_AGAIN_S)
        assigned.back_off(now_s, settings.retry_backoff_ms / 1000, most_s)
        self.waiting[assigned] = None


def _is_same(known: Assigned, wanted: tuple[Place, int | None] | None) -> bool:
    return wanted is not None and wanted[0].topic_id == known.place.topic_id
