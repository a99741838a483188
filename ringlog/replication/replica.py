"""One replica of a partition, whatever its role: takes views in order, and keeps what outlives a role. Pure.

            view with a later leader epoch, which names…
            ┌─ this node as leader ──► Leader
    (none) ─┼─ this node, which may have led in that epoch before ──► (none), and the next epoch is asked for
            ├─ another leader ───────► Follower
            └─ no leader, or it or this node is no replica ──► (none)

A role lives for one leader epoch. A view of the same leader epoch changes the ISR, or the settings, within the role; an
earlier one changes nothing. The high watermark outlives roles, but not the process: it is learned anew from the others;
nor, in a follower, the election of a leader that was not in sync: what was committed before may be no more.

Followers are sent what their leader is still writing. A process that dies may lose that, and its successor would write
other records at the same offsets: under the same epoch nobody could tell the two apart. So nobody leads a second time
in one epoch, but asks the controller for the next.
"""

from __future__ import annotations

from ringlog.errors import NotLeader, PartitionOffline, ReplicaHalted
from ringlog.model import NO_LEADER
from ringlog.replication.follower import Follower
from ringlog.replication.leader import Leader
from ringlog.replication.view import IsrProposal, PartitionView, ReplicaLog


class Replica:
    """One partition on one node."""

    def __init__(self, node: int, partition: int) -> None:
        self.node = node
        self.partition = partition
        self.view: PartitionView | None = None
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.halted: ReplicaHalted | None = None
        """Why it takes part in nothing any more, until somebody has looked at it."""
        self.renewal: IsrProposal | None = None
        """Where this node is to lead, and may have led in that epoch before: what it asks the controller for."""
        self._high_watermark = 0

    @property
    def high_watermark(self) -> int:
        """All below is committed, as far as is known here."""
        role = self.leader or self.follower
        return role.high_watermark if role is not None else self._high_watermark

    def follow(
        self, view: PartitionView, log: ReplicaLog, node_epoch: int, now_ms: int, *, resumed: bool = False
    ) -> bool:
        """Take a view; whether the role, or its epoch, is another one now. `node_epoch`: of our registration;
        `resumed`: what is new here may have led before, in another process or before its log was opened anew."""
        if self.view is not None and (view.order < self.view.order or view == self.view):
            return False
        previous, self.view = self.view, view
        if previous is not None and view.leader_epoch == previous.leader_epoch:
            if self.leader is not None:
                self.leader.changed(view, log, now_ms)
            elif self.follower is not None:
                self.follower.view = view
            elif self.renewal is not None:
                self.renewal = self._renewal(view, node_epoch)
            return False
        self._high_watermark = max(self.high_watermark, log.start_offset)
        if previous is not None and view.unclean_epoch > previous.leader_epoch and view.leader != self.node:
            self._high_watermark = log.start_offset
        self.leader = self.follower = self.renewal = None
        if log.last_epoch > view.leader_epoch:
            self.halt(
                ReplicaHalted(
                    f"partition id {view.partition}: the log has epoch {log.last_epoch}, and the metadata says "
                    f"{view.leader_epoch}: it is of another history. Do not delete either"
                )
            )
        elif self.halted is not None or not {self.node, view.leader} <= set(view.replicas):
            return True
        elif view.leader == self.node and resumed and previous is None:
            self.renewal = self._renewal(view, node_epoch)
        elif view.leader == self.node:
            self.leader = Leader(self.node, node_epoch, view, log, self._high_watermark, now_ms)
        else:
            self.follower = Follower(view, self._high_watermark)
        return True

    def _renewal(self, view: PartitionView, node_epoch: int) -> IsrProposal:
        isr = tuple((node, node_epoch if node == self.node else -1) for node in view.isr)
        return IsrProposal(
            view.partition, self.node, view.leader_epoch, view.partition_epoch, isr, renews=True
        )

    def halt(self, why: ReplicaHalted) -> None:
        """Take part in nothing any more."""
        self._high_watermark = self.high_watermark
        self.halted, self.leader, self.follower, self.renewal = why, None, None, None

    @property
    def moves_in(self) -> bool:
        """A move makes this replica, and it is not in sync yet: nobody waits for it, so it may be filled slowly."""
        view = self.view
        return view is not None and self.node in view.adding and self.node not in view.isr

    @property
    def serves_readers(self) -> bool:
        """It leads, or it follows and the metadata has it among those in sync."""
        if self.leader is not None:
            return True
        return self.follower is not None and self.view is not None and self.node in self.view.isr

    def must_lead(self) -> Leader:
        """The leader's state; raises what a client is to be told where there is none."""
        if self.leader is not None:
            return self.leader
        if self.halted is not None:
            # A new one each time: one for all would gather the traceback, and the frames, of every request.
            raise ReplicaHalted(str(self.halted))
        if self.view is not None and self.view.leader == NO_LEADER:
            raise PartitionOffline(
                f"partition id {self.partition}: its in-sync replicas {list(self.view.isr)} are down. Start one of them"
            )
        if self.renewal is not None:
            raise NotLeader(
                f"partition id {self.partition}: node {self.node} waits for a new leader epoch. Fetch metadata, then "
                "retry"
            )
        raise NotLeader(
            f"partition id {self.partition} is not led by node {self.node}. Fetch metadata, then retry"
        )
