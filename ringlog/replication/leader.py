"""The leader of one partition: who holds how much, what is committed, who is in sync. Pure.

Invariants, each checked where it could break:

- a follower's position counts only when its fetch carries this leader's epoch and its last epoch is the one that
  stands at that offset here: then its log is a prefix of this one;
- the high watermark never goes back, and never passes what any in-sync replica holds, this one included; replicas
  that were proposed for the ISR count as if they were in it, those proposed to leave count until the controller agrees;
- it stands still while fewer than `min_insync` replicas are in sync: what is committed is held by as many;
- a deletion is done when the log of every in-sync replica begins behind it, durably, and a replica whose log begins
  before the leader's does not come into sync: whoever leads next, what was deleted stays deleted;
- one proposal is under way at a time, against one partition epoch;
- nobody leads a second time in one epoch (`Replica.renewal`): what a former process proposed, and what it sent to
  followers and lost, is over with its epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ringlog.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    NotEnoughReplicas,
    UnknownLeaderEpoch,
    check,
)
from ringlog.replication.messages import Want
from ringlog.replication.view import EpochEnd, IsrProposal, PartitionView, ReplicaLog

UNKNOWN = -1
"""What a follower holds before it has fetched from this leader."""


@dataclass(slots=True)
class FollowerState:
    """What the leader knows of one follower, all of it learned in the present epoch."""

    node_epoch: int = UNKNOWN
    session: int = UNKNOWN
    """The conversation in which its positions came. In a later one they may be lower: its log was opened anew."""
    fetch_offset: int = UNKNOWN
    held_offset: int = UNKNOWN
    start_offset: int = UNKNOWN
    """Where its log begins, durably."""
    mark_ms: int = 0
    mark_offset: int = 0
    """A moment, and where this log ended then: who holds that has caught up with that moment. It stays until then,
    however many reports come: what they tell is always as old as their way is long."""
    caught_up_ms: int = 0
    """The last moment of which it is known to hold all that there was."""

    def look(self, end_offset: int, now_ms: int) -> None:
        """Find out how far it has caught up with this log, which ends here now."""
        if self.held_offset >= end_offset:
            self.caught_up_ms = now_ms
        elif self.held_offset >= self.mark_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.mark_ms)
        else:
            return
        self.mark_ms, self.mark_offset = now_ms, end_offset


class Serve(NamedTuple):
    """The follower's log is a prefix: send it batches from this offset on."""

    offset: int


class Diverged(NamedTuple):
    """The follower must cut its log: here its epoch ends so."""

    end: EpochEnd


class BeginsLater(NamedTuple):
    """What the follower asks for is deleted: the log begins here now."""

    start_offset: int


Verdict = Serve | Diverged | BeginsLater


class Leader:
    """One partition's leader, for one leader epoch."""

    def __init__(
        self,
        node: int,
        node_epoch: int,
        view: PartitionView,
        log: ReplicaLog,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        check(view.leader == node, "who leads was elected")
        check(node in view.isr, "a leader is in sync with itself")
        check(log.last_epoch <= view.leader_epoch, "no log is ahead of its leader's epoch")
        self.node = node
        self.node_epoch = node_epoch
        self.view = view
        self.high_watermark = high_watermark
        self.epoch_start_offset = log.end_offset
        """Whoever holds the log up to here holds all that earlier epochs committed."""
        self.followers = {
            replica: FollowerState(caught_up_ms=now_ms) for replica in view.replicas if replica != node
        }
        self.pending: IsrProposal | None = None
        """Sent to the controller, and not yet answered by a later view or a refusal."""
        self.advance(log)

    # -- what clients are told -------------------------------------------------------------------------------

    def must_take(self) -> None:
        """Raise NotEnoughReplicas unless a record that is appended now could become committed."""
        if len(self.view.isr) < self.view.min_insync:
            raise NotEnoughReplicas(
                f"partition id {self.view.partition}: {len(self.view.isr)} replicas are in sync, and "
                f"{self.view.min_insync} are asked for. Retry when a replica is back"
            )

    @property
    def knows_end(self) -> bool:
        """Whether the high watermark covers all that was committed before this epoch: until then, its value is no
        answer to where the log ends."""
        return self.high_watermark >= self.epoch_start_offset

    # -- fetches ---------------------------------------------------------------------------------------------

    def fetched(
        self, node: int, node_epoch: int, want: Want, log: ReplicaLog, now_ms: int, session: int = UNKNOWN
    ) -> Verdict:
        """Judge a follower's fetch, and note what it holds. Raises what the follower is to be told otherwise.
        `session`: the number of the conversation, which grows."""
        require_epoch(want.leader_epoch, self.view)
        follower = self.followers.get(node)
        if follower is None or (node_epoch, session) < (follower.node_epoch, follower.session):
            raise InvalidRequest(
                f"node {node} at epoch {node_epoch} is no replica of partition {self.view.partition}"
            )
        if not 0 <= want.held_offset <= want.fetch_offset:
            raise InvalidRequest(
                f"node {node} holds {want.held_offset} of a log that ends at {want.fetch_offset}"
            )
        if (node_epoch, session) > (follower.node_epoch, follower.session):
            # It restarted, or one of its processes did: what it once held it may have lost.
            follower = FollowerState(node_epoch, session, caught_up_ms=follower.caught_up_ms)
            self.followers[node] = follower
        if want.fetch_offset < log.start_offset:
            return BeginsLater(log.start_offset)
        diverged = self._divergence(want, log)
        if diverged is not None:
            return diverged
        self._note(follower, want, log, now_ms)
        self.advance(log)
        return Serve(want.fetch_offset)

    def _divergence(self, want: Want, log: ReplicaLog) -> Diverged | None:
        """None if the follower's log, which ends with `last_epoch` at `fetch_offset`, is a prefix of this one."""
        if want.fetch_offset == log.start_offset:
            return None  # nothing is left here, below it, to compare with
        if want.start_offset == want.fetch_offset <= log.end_offset:
            return None  # it is empty: all was deleted there, or it began anew; whatever epoch it had, nothing differs
        here = log.end_of(want.last_epoch)
        if here is None:
            # All that this log has is newer: what the follower ends with was never, or is no more, here.
            return Diverged(EpochEnd(want.last_epoch, log.start_offset))
        if here.epoch != want.last_epoch or here.offset < want.fetch_offset:
            return Diverged(here)
        return None

    def _note(self, follower: FollowerState, want: Want, log: ReplicaLog, now_ms: int) -> None:
        """Take over a position that is known to be a prefix's. A late one, with lower offsets, changes nothing."""
        check(want.fetch_offset <= log.end_offset, "a prefix is not longer than the whole")
        # One that does not say where its log begins (its node is of an older version) is not waited for.
        start = want.start_offset if want.start_offset >= 0 else log.start_offset
        follower.start_offset = max(follower.start_offset, start)
        if want.fetch_offset < follower.fetch_offset or want.held_offset < follower.held_offset:
            return
        follower.fetch_offset, follower.held_offset = want.fetch_offset, want.held_offset
        follower.look(log.end_offset, now_ms)

    # -- commitment --------------------------------------------------------------------------------------------

    def advance(self, log: ReplicaLog) -> bool:
        """Move the high watermark as far as it may go; whether it moved."""
        view = self.view
        if len(view.isr) < view.min_insync:
            return False
        offset = self._held_by(self._counted, log)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def _held_by(self, nodes: Iterable[int], log: ReplicaLog) -> int:
        """How far all of these replicas, and this one, hold the log."""
        offset = log.held_offset
        for node in nodes:
            if node != self.node:
                follower = self.followers.get(node)
                offset = min(offset, follower.held_offset if follower is not None else UNKNOWN)
        return offset

    @property
    def _counted(self) -> set[int]:
        """Replicas that are in sync, or are proposed and may be without this leader's knowing."""
        return {*self.view.isr, *(self.pending.nodes if self.pending else ())}

    def counts_on(self, node: int) -> bool:
        """Whether a replica is in sync, or may be by a proposal that is under way."""
        return node in self._counted

    def is_deleted(self, offset: int, log: ReplicaLog) -> bool:
        """Whether no replica that counts could bring back what was below an offset."""
        return log.durable_start_offset >= offset and all(
            node == self.node or (node in self.followers and self.followers[node].start_offset >= offset)
            for node in self._counted
        )

    # -- who is in sync ------------------------------------------------------------------------------------------

    def propose(
        self,
        log: ReplicaLog,
        lag_ms_max: int,
        now_ms: int,
        lives: Callable[[int, int], bool] = lambda node, node_epoch: True,
    ) -> IsrProposal | None:
        """A change of the ISR that is due, if none is under way. It is to be sent until it is answered.

        `lives`: whether a node is there, as far as is known, in the life in which it fetched. One that is not would be
        refused, and until then commits would wait for it."""
        for follower in self.followers.values():
            follower.look(
                log.end_offset, now_ms
            )  # of an idle log nothing is fetched: its last look is the latest news
        if self.pending is not None:
            return None
        view = self.view
        staying = [
            node for node in view.isr if node == self.node or not self._lags(node, log, lag_ms_max, now_ms)
        ]
        joining = [
            node
            for node in view.replicas
            if node not in view.isr and self._may_join(node, log) and lives(node, self._epoch_of(node))
        ]
        if tuple(staying) == view.isr and not joining:
            return None
        return self._propose((*staying, *joining))

    def _propose(self, nodes: Iterable[int]) -> IsrProposal:
        view, wanted = self.view, set(nodes)
        isr = tuple((node, self._epoch_of(node)) for node in view.replicas if node in wanted)
        self.pending = IsrProposal(view.partition, self.node, view.leader_epoch, view.partition_epoch, isr)
        return self.pending

    def _lags(self, node: int, log: ReplicaLog, lag_ms_max: int, now_ms: int) -> bool:
        follower = self.followers.get(node)
        if follower is None:
            return True  # no replica any more
        return follower.held_offset < log.end_offset and now_ms - follower.caught_up_ms > lag_ms_max

    def _may_join(self, node: int, log: ReplicaLog) -> bool:
        """It holds all that is committed, also all that earlier epochs may have committed, which the watermark
        covers only once it has passed the start of this one; and nothing that was deleted here."""
        follower = self.followers.get(node)
        if follower is None or follower.held_offset == UNKNOWN or follower.start_offset < log.start_offset:
            return False
        return follower.held_offset >= max(self.high_watermark, self.epoch_start_offset)

    def _epoch_of(self, node: int) -> int:
        return self.node_epoch if node == self.node else self.followers[node].node_epoch

    def refused(
        self, proposal: IsrProposal, leader_epoch: int, partition_epoch: int, log: ReplicaLog
    ) -> bool:
        """The controller said no for good, when the partition was at these epochs: a new proposal may be made; whether
        the watermark moved, since those who were proposed count no more.

        Where the partition has changed since it was proposed, a copy that came before this one may have changed it:
        until that is known here they may be in sync, and count. The same after a time-out: it is sent again."""
        pending = self.pending
        if proposal != pending or (leader_epoch, partition_epoch) != (
            pending.leader_epoch,
            pending.partition_epoch,
        ):
            return False
        self.pending = None
        return self.advance(log)

    def changed(self, view: PartitionView, log: ReplicaLog, now_ms: int) -> None:
        """The controller changed the partition within this leader epoch: its ISR, its replicas or its settings."""
        check(view.leader_epoch == self.view.leader_epoch, "a leader serves one epoch")
        check(view.leader == self.node, "an epoch has one leader")
        check(view.partition_epoch >= self.view.partition_epoch, "views are taken in order")
        if view.partition_epoch > self.view.partition_epoch:
            self.pending = None
        self.view = view
        for replica in view.replicas:
            if replica != self.node and replica not in self.followers:
                self.followers[replica] = FollowerState(caught_up_ms=now_ms)
        for gone in [node for node in self.followers if node not in view.replicas]:
            del self.followers[gone]
        self.advance(log)


def require_epoch(epoch: int, view: PartitionView) -> None:
    """Raise unless a message of another replica is of the epoch that this one is at."""
    if epoch < view.leader_epoch:
        raise FencedLeaderEpoch(
            f"partition id {view.partition}: epoch {epoch} is over, it is {view.leader_epoch} now. Follow the metadata"
        )
    if epoch > view.leader_epoch:
        raise UnknownLeaderEpoch(
            f"partition id {view.partition}: epoch {epoch} is not known yet, it is {view.leader_epoch}. Retry later"
        )
