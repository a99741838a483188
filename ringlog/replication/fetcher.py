"""A follower node's end of fetches: one conversation with one lane of one leader node, for many partitions. Pure.

A fetch names the partitions whose position changed since the last one, then waits at the leader for news of all.
Another one overtakes it when a partition is new here: a change of leaders must not wait for a long poll. What is held
by now is reported at once, since commits wait for that: beside the fetches while data streams, else with the next one,
which waits for the flush (a lull): one message less on the way of every commit, at both ends.
"""

from __future__ import annotations

from itertools import islice

from ringlog.limits import (
    FETCH_PARTITIONS_MAX,
    REPLICA_BACKOFF_MS,
    REPLICA_FETCH_BYTES,
    REPLICA_FETCH_WAIT_MS,
    REPLICA_FETCHES_MAX,
    REPLICA_LULL_BYTES,
    REPLICA_LULL_MS,
    REPLICA_MEND_BACKOFF_MS,
    REPLICA_REPLY_MS_MAX,
)
from ringlog.replication.messages import Part, ReplicaFetch, ReplicaFetched, ReplicaHeld, Want
from ringlog.replication.replica import Replica
from ringlog.replication.throttle import Throttle
from ringlog.replication.view import ReplicaLog


class Followed:
    """One partition of the conversation."""

    __slots__ = ("_pause_ms", "log", "replica", "reported")

    def __init__(self, replica: Replica, log: ReplicaLog) -> None:
        self.replica = replica
        self.log = log
        self.reported: Want | None = None
        """The last position that was sent; None: none was, or it is to be sent again whatever it is."""
        self._pause_ms = 0
        """The last pause of one that is being mended."""

    def next_pause_ms(self) -> int:
        """How long to wait after an answer that could not be used. Who waits to be cut to its hole may wait for another
        leader: twice as long each time."""
        follower = self.replica.follower
        if follower is None or not follower.is_mending(self.log):
            self._pause_ms = 0
            return REPLICA_BACKOFF_MS
        self._pause_ms = min(max(2 * self._pause_ms, REPLICA_BACKOFF_MS), REPLICA_MEND_BACKOFF_MS)
        return self._pause_ms

    def want(self, throttle: Throttle) -> Want | None:
        follower = self.replica.follower
        if follower is None:
            return None
        bytes_max = throttle.piece_bytes if self.replica.moves_in else REPLICA_FETCH_BYTES
        return follower.want(self.log, bytes_max)


class Fetcher:
    """The conversation with one lane of one leader node."""

    def __init__(
        self,
        node: int,
        node_epoch: int,
        lane: int,
        first_session: int,
        lull_bytes: int = REPLICA_LULL_BYTES,
        throttle: Throttle | None = None,
    ) -> None:
        """`first_session`: larger than any that this lane had with that leader before, under this node epoch.
        `lull_bytes`: after an answer with less, the next fetch waits for the flush. `throttle`: of all that is moved to
        this lane, from whomever."""
        self._throttle = throttle or Throttle()
        self._node = node
        self._node_epoch = node_epoch
        self._lane = lane
        self._lull_bytes = lull_bytes
        self._session = first_session
        self._sequence = 0
        """Of the next fetch."""
        self._partitions: dict[int, Followed] = {}
        self._dirty: dict[int, None] = {}
        """Partitions whose position is to be looked at for the next fetch."""
        self._progressed: dict[int, None] = {}
        """Partitions that may hold more, or begin later, than was reported."""
        self._paused: dict[int, int] = {}
        """Partitions that are to be asked for again, and when."""
        self._throttled: set[int] = set()
        """Those of them that wait for their share of a rate."""
        self._forget: list[int] = []
        self._urgent = False
        """Something in the next fetch should not wait for the answer to the last."""
        self._give_up_ms: dict[int, int] = {}
        """Fetches that are not answered yet: until when they may be, by their sequence."""
        self._resume_ms = 0
        self._lull_ms = 0
        """Until then the next fetch waits for something to be held, if there is something that is not."""

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, partition: int) -> bool:
        return partition in self._partitions

    def add(self, replica: Replica, log: ReplicaLog) -> None:
        """Follow a partition here, or follow it under another epoch or with another log."""
        self._partitions[replica.partition] = Followed(replica, log)
        self._paused.pop(replica.partition, None)
        self._dirty[replica.partition] = None
        self._urgent = True

    def remove(self, partition: int) -> None:
        """Its leader is elsewhere now, or here."""
        if self._partitions.pop(partition, None) is not None:
            for kept in (self._dirty, self._progressed, self._paused):
                kept.pop(partition, None)
            self._throttled.discard(partition)
            self._forget.append(partition)

    def progressed(self, partition: int) -> None:
        """More of a partition's log is held than before, or it begins later."""
        if partition in self._partitions:
            self._progressed[partition] = None

    def registered(self, node_epoch: int) -> None:
        """This node was registered anew: who leads hears it as another life of the node from now on."""
        if node_epoch != self._node_epoch:
            self._node_epoch = node_epoch
            self._begin_anew()

    def reopened(self) -> None:
        """A log was opened anew here: in a conversation that goes on, the leader would take what it knew for true."""
        self._begin_anew()

    # -- asking ----------------------------------------------------------------------------------------------

    def next_fetch(self, now_ms: int, credit_bytes: int) -> ReplicaFetch | None:
        """The fetch to send now, if one is due. `credit_bytes`: what there is room for here."""
        if self._give_up_ms and now_ms >= min(self._give_up_ms.values()):
            self._begin_anew()
        if self._paused:
            self._end_pauses(now_ms)
        if not self._partitions or credit_bytes <= 0 or now_ms < self._resume_ms:
            return None
        if not self._may_ask:
            return None
        if now_ms < self._lull_ms and self._is_flushing:
            return None
        wait_ms = REPLICA_FETCH_WAIT_MS
        if self._paused:
            wait_ms = max(1, min(wait_ms, min(self._paused.values()) - now_ms))
        fetch = ReplicaFetch(
            self._node,
            self._node_epoch,
            self._lane,
            self._session,
            self._sequence,
            wait_ms,
            min(REPLICA_FETCH_BYTES, credit_bytes),
            self._changed_wants(),
            self._forget,
        )
        self._give_up_ms[self._sequence] = now_ms + REPLICA_FETCH_WAIT_MS + REPLICA_REPLY_MS_MAX
        self._sequence += 1
        self._forget = []
        self._urgent = bool(self._dirty)
        return fetch

    @property
    def _may_ask(self) -> bool:
        """Few enough fetches are under way for another one."""
        return len(self._give_up_ms) < (REPLICA_FETCHES_MAX if self._urgent else 1)

    def waits_for_flush(self, now_ms: int) -> bool:
        """Nothing is to be done before a flush is done, or a lull over."""
        return now_ms < self._lull_ms and not self._paused and self._is_flushing

    @property
    def _is_flushing(self) -> bool:
        """Nothing is new to be told, and soon something will be: what came last is on its way to the disk."""
        if self._urgent or self._progressed:
            return False
        for partition in self._dirty:
            log = self._partitions[partition].log
            if log.held_offset < log.end_offset:
                return True
        return False

    def _changed_wants(self) -> list[Want]:
        """A bounded number, so that a fetch fits a frame; the rest follows in the next."""
        wants = []
        partitions = list(islice(self._dirty, FETCH_PARTITIONS_MAX))
        for partition in partitions:
            del self._dirty[partition]
            followed = self._partitions[partition]
            want = followed.want(self._throttle)
            if want is not None and want != followed.reported:
                followed.reported = want
                wants.append(want)
                self._progressed.pop(partition, None)
        return wants

    def _end_pauses(self, now_ms: int) -> None:
        for partition in [partition for partition, until in self._paused.items() if until <= now_ms]:
            del self._paused[partition]
            self._throttled.discard(partition)
            self._dirty[partition] = None
            self._urgent = True

    def report(self) -> ReplicaHeld | None:
        """What is held, or deleted, beyond the positions last sent, if anything is."""
        if not self._progressed:
            return None
        wants = []
        for partition in list(self._progressed):
            followed = self._partitions[partition]
            want, reported = followed.want(self._throttle), followed.reported
            if reported is None:
                continue  # its position is to be sent anew: the next fetch, which is about to leave, tells this, too
            del self._progressed[partition]
            if want is not None and _says_more(want, reported):
                # Nobody answers a report, and it may be lost: the next fetch says it again.
                self._dirty[partition] = None
                wants.append(want)
        return ReplicaHeld(self._node, self._node_epoch, wants, self._session) if wants else None

    def due_ms(self) -> int | None:
        """When `next_fetch` must be called at the latest, should nothing happen before."""
        if not self._partitions:
            return None
        due = [self._next_ms] if self._may_ask else list(self._give_up_ms.values())
        return min([*due, *self._paused.values()])

    @property
    def _next_ms(self) -> int:
        """When the next fetch leaves, should nothing happen before."""
        return max(self._resume_ms, self._lull_ms) if self._is_flushing else self._resume_ms

    # -- answers -----------------------------------------------------------------------------------------------

    def take(self, head: ReplicaFetched, now_ms: int) -> list[Part] | None:
        """The parts of an answer, to be looked at one by one; None for an answer that nobody waits for."""
        if head.session != self._session or self._give_up_ms.pop(head.sequence, None) is None:
            return None
        if head.lost:
            self._begin_anew()
            return None
        for part in head.parts:
            followed = self._partitions.get(part.partition)
            if followed is not None:
                # The leader says nothing more of this partition until it has heard its position again.
                followed.reported = None
                self._dirty[part.partition] = None
        if sum(part.nbytes for part in head.parts) < self._lull_bytes:
            self._lull_ms = now_ms + REPLICA_LULL_MS
        else:
            self._lull_ms = 0
        return head.parts

    def slow_down(self, part: Part, now_ms: int) -> None:
        """A part of an answer is here: if it is of a replica that is being moved, the next one may have to wait."""
        followed = self._partitions.get(part.partition)
        if part.nbytes and followed is not None and followed.replica.moves_in:
            self._throttle.took(part.nbytes, now_ms)
            self._ask_at(part.partition, self._throttle.free_ms(now_ms), now_ms)

    def hurry(self, now_ms: int) -> None:
        """Moves may be faster, or slower, from now on."""
        for partition in [one for one in self._throttled if one in self._paused]:
            self._ask_at(partition, self._throttle.free_ms(now_ms), now_ms)

    def _ask_at(self, partition: int, at_ms: int, now_ms: int) -> None:
        if at_ms > now_ms:
            self._dirty.pop(partition, None)
            self._paused[partition] = at_ms
            self._throttled.add(partition)
        elif self._paused.pop(partition, None) is not None:
            self._dirty[partition] = None
            self._urgent = True

    def pause(self, partition: int, now_ms: int) -> None:
        """An answer could not be used: ask again a little later."""
        followed = self._partitions.get(partition)
        if followed is not None:
            self._dirty.pop(partition, None)
            self._paused[partition] = now_ms + followed.next_pause_ms()

    def failed(self, now_ms: int) -> None:
        """The leader cannot be reached, or refused a fetch as a whole."""
        self._begin_anew()
        self._resume_ms = now_ms + REPLICA_BACKOFF_MS

    def _begin_anew(self) -> None:
        self._session += 1
        self._sequence = 0
        self._give_up_ms = {}
        self._forget = []
        self._paused = {}
        self._dirty = dict.fromkeys(self._partitions)
        self._progressed = {}
        self._lull_ms = 0
        for followed in self._partitions.values():
            followed.reported = None


def _says_more(want: Want, reported: Want) -> bool:
    return want.held_offset > reported.held_offset or want.start_offset > reported.start_offset
