"""One replica of a partition, whatever its role: takes views in order, and keeps what outlives a role. Pure.

            view with a later leader epoch, which names…
            ┌─ this node as leader ──► Leader
    (none) ─┼─ this node, whose log was opened anew or has a hole ──► (none), and it asks to be relieved
            ├─ another leader ───────► Follower
            └─ no leader, or it or this node is no replica ──► (none)

A role lives for one leader epoch. A view of the same leader epoch changes the ISR, or the settings, within the role; an
earlier one changes nothing. The high watermark outlives roles, but not the process: it is learned anew from the others;
nor, in a follower, the election of a leader that was not in sync: what was committed before may be no more.

A log that is opened anew, because its process died or a disk failed, may lack what it held: what was sent to followers
and not written yet is gone, and so is what rotted. Who leads with it makes the others cut what was committed, or writes
other records at the same offsets of the same epoch. So a replica with such a log leaves the in-sync ones first
(`renewal`), leads nothing until it has, and comes back when it has caught up. Where it is the only one in sync it
leads, in the next epoch.

A log with a hole, whenever that is found, is left the same way; who leads meanwhile goes on until another one does.
Where it is the only one in sync it goes on in its epoch, since it has lost nothing of what it wrote in it: others have
less than it has, and who asks for what it lacks is told so.
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
        """While its log was opened anew or has a hole, and it is in sync by the metadata: what it asks the controller
        for."""
        self._reopened_in: int | None = None
        """The leader epoch in which the log was opened anew, until it is out of sync or may lead."""
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
        `resumed`: what is new here was here before, under the same registration: its log is opened anew."""
        if self.view is not None and (view.order < self.view.order or view == self.view):
            return False
        previous, self.view = self.view, view
        if previous is None and resumed:
            self._reopened_in = view.leader_epoch
        self.renewal = self._due_renewal(view, log, node_epoch)
        if previous is not None and view.leader_epoch == previous.leader_epoch:
            if self.leader is not None:
                self.leader.changed(view, log, now_ms)
            elif self.follower is not None:
                self.follower.view = view
            return self._lead(log, node_epoch, now_ms)
        self._high_watermark = max(self.high_watermark, log.start_offset)
        if previous is not None and view.unclean_epoch > previous.leader_epoch and view.leader != self.node:
            self._high_watermark = log.start_offset
        self.leader = self.follower = None
        if log.last_epoch > view.leader_epoch:
            self.halt(
                ReplicaHalted(
                    f"partition id {view.partition}: the log has epoch {log.last_epoch}, and the metadata says "
                    f"{view.leader_epoch}: it is of another history. Do not delete either"
                )
            )
        elif self.halted is not None or not {self.node, view.leader} <= set(view.replicas):
            return True
        elif view.leader != self.node:
            self.follower = Follower(self.node, view, self._high_watermark)
        else:
            self._lead(log, node_epoch, now_ms)
        return True

    def look(self, log: ReplicaLog, node_epoch: int, now_ms: int) -> bool:
        """A hole was found in the log, or is none any more; whether it leads from now on."""
        if self.view is None or self.halted is not None:
            return False
        self.renewal = self._due_renewal(self.view, log, node_epoch)
        return self._lead(log, node_epoch, now_ms)

    def _lead(self, log: ReplicaLog, node_epoch: int, now_ms: int) -> bool:
        """Lead, if this replica was elected and waits for nothing any more; whether it leads from now on. Also in the
        middle of an epoch: the others may have left while it waited, and nobody else leads in it."""
        view = self.view
        if view is None or view.leader != self.node or self.leader is not None:
            return False
        if self.renewal is not None or self.halted is not None or self.node not in view.replicas:
            return False
        self.leader = Leader(self.node, node_epoch, view, log, self._high_watermark, now_ms)
        return True

    def _due_renewal(self, view: PartitionView, log: ReplicaLog, node_epoch: int) -> IsrProposal | None:
        """What is to be asked for while the metadata says that this log holds what it may lack."""
        is_alone = view.isr == (self.node,)
        if self.node not in view.isr:
            self._reopened_in = None
            return None
        if self._reopened_in is not None and is_alone and view.leader_epoch > self._reopened_in:
            self._reopened_in = None
        if is_alone and (self._reopened_in is None or view.leader != self.node):
            return None  # whoever elects it does so in another epoch
        if self._reopened_in is None and log.hole_offset is None:
            return None
        return self.resignation(view, node_epoch)

    def resignation(self, view: PartitionView, node_epoch: int) -> IsrProposal:
        """Asks the controller to count on this replica no more, as long as there is another one."""
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
    def is_whole(self) -> bool:
        """It is in sync: a leader has found that it holds all that was ever committed. After an unclean election
        nobody knows that: what it has set aside may be all that is left of some records."""
        view = self.view
        if view is None or self.node not in view.isr or self.renewal is not None:
            return False
        return (self.follower is not None or self.leader is not None) and view.unclean_epoch < 0

    @property
    def is_spared(self) -> bool:
        """Others are in sync, as far as is known here: what cannot be read from this log can from theirs."""
        return self.view is not None and any(node != self.node for node in self.view.isr)

    @property
    def serves_readers(self) -> bool:
        """It leads, or it follows and the metadata has it among those in sync."""
        if self.leader is not None:
            return True
        is_in_sync = self.view is not None and self.node in self.view.isr and self.renewal is None
        return self.follower is not None and is_in_sync

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
                f"partition id {self.partition}: node {self.node} opened its log anew, or lacks records, and waits for "
                "another leader or epoch. Fetch metadata, then retry"
            )
        raise NotLeader(
            f"partition id {self.partition} is not led by node {self.node}. Fetch metadata, then retry"
        )
