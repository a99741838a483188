"""Known failures of replication, as changes to the real cores: each must be caught by the checkers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import msgspec

from ringlog.controller import leaders as leaders_module
from ringlog.controller import unclean as unclean_module
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import MetadataRecord, Partition
from ringlog.replication import leader as leader_module
from ringlog.replication.follower import Follower
from ringlog.replication.leader import Diverged, Leader
from ringlog.replication.messages import Part, Want
from ringlog.replication.replica import Replica
from ringlog.replication.view import EpochEnd, IsrProposal, PartitionView, ReplicaLog, WholePart
from tests.sim.replica_broker import SimBroker
from tests.sim.replica_controller import SimController
from tests.sim.replica_log import SimLog
from tests.sim.replica_real_controller import RealController
from tests.sim.replicas import ALL_KINDS, HOLE_KINDS, replicas, replicas_short, unclean


@dataclass(frozen=True)
class Mutant:
    """One failure: what is changed, and the faults under which it shows."""

    changes: Sequence[tuple[object, str, object]]
    kinds: Sequence[str] = ALL_KINDS
    controller: type[SimController] = RealController
    """Failures of the controller itself are shown with the simulated one, which can be told to have them."""
    unclean: bool = False
    """Shown where a topic allows unclean elections."""
    seen_at: int = 0
    """The first seed that caught it when it was looked for: tried first. A change to the simulator moves it."""
    short: bool = True
    """Shown by short storms, which are cheaper."""

    @contextmanager
    def alive(self) -> Iterator[None]:
        """The code has the failure inside of the block."""
        patches = [patch.object(owner, name, value) for owner, name, value in self.changes]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in reversed(patches):
                one.stop()

    def scenario(self, seed: int) -> list[str]:
        """Run one seed with the failure in."""
        with self.alive():
            return self.without(seed)

    def without(self, seed: int) -> list[str]:
        """The same without the failure."""
        if self.unclean:
            return unclean(seed)
        if self.short and self.controller is RealController:
            return replicas_short(seed, self.kinds)
        return replicas(seed, kinds=self.kinds, controller=self.controller)


def _by_offsets_alone(self: Leader, want: Want, log: ReplicaLog) -> Diverged | None:
    return Diverged(EpochEnd(want.last_epoch, log.end_offset)) if want.fetch_offset > log.end_offset else None


def _believing(method: Callable[..., object]) -> Callable[..., object]:
    """Follower.take, for an answer of any epoch."""

    def take(self: Follower, part: Part, batches: object, log: ReplicaLog) -> object:
        return method(self, msgspec.structs.replace(part, leader_epoch=self.view.leader_epoch), batches, log)

    return take


def _counting_proposals(self: Leader, log: ReplicaLog) -> bool:
    """Leader.advance of a leader that thinks its wish is granted."""
    nodes = self.pending.nodes if self.pending is not None else self.view.isr
    if len(self.view.isr) < self.view.min_insync:
        return False
    offset = self._held_by(nodes, log)
    moved = offset > self.high_watermark
    self.high_watermark = max(self.high_watermark, offset)
    return moved


def _without_minimum(self: Leader, log: ReplicaLog) -> bool:
    """Leader.advance, however few are in sync."""
    view, self.view = self.view, self.view._replace(min_insync=1)
    try:
        return _advance(self, log)
    finally:
        self.view = view


def _joins_at_once(self: Leader, node: int, log: ReplicaLog) -> bool:
    """Leader._may_join, as soon as somebody asks for anything."""
    return self.followers[node].held_offset >= 0


def _remembering(method: Callable[..., bool]) -> Callable[..., bool]:
    """Replica.follow of one that is told nothing of unclean elections."""

    def follow(self: Replica, view: PartitionView, *given: object, **named: object) -> bool:
        return method(self, view._replace(unclean_epoch=-1), *given, **named)

    return follow


def _starting_afresh(method: Callable[..., bool]) -> Callable[..., bool]:
    """Replica.follow of one that thinks that nobody led before it."""

    def follow(self: Replica, *given: object, resumed: bool = False) -> bool:
        return method(self, *given)

    return follow


def _trusting_its_log(
    self: Replica, view: PartitionView, log: ReplicaLog, node_epoch: int
) -> IsrProposal | None:
    """Replica._due_renewal of one that needs a new epoch to lead in, and thinks that it lacks nothing."""
    if self._reopened_in is None or view.leader != self.node or view.leader_epoch > self._reopened_in:
        self._reopened_in = None
        return None
    return self.resignation(view, node_epoch)


def _trusting_its_word(image: MetadataImage, partition: Partition, node_id: int) -> Partition:
    """leaders.relieved, of a controller that thinks so, too."""
    return leaders_module.renewed(partition)


class _Unread:
    """A log of which nobody knows that something lacks in it."""

    hole_offset = None

    def __init__(self, log: ReplicaLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


def _seeing_no_hole(method: Callable[..., object]) -> Callable[..., object]:
    """A method of a replica or follower, which looks at how far its log reaches and at nothing else."""

    def blind(self: object, *given: object) -> object:
        return method(self, *[_Unread(one) if isinstance(one, SimLog) else one for one in given])

    return blind


def _taking_itself_for_free(method: Callable[..., object]) -> Callable[..., object]:
    """Follower.take of one that goes by the metadata that it has."""

    def take(self: Follower, part: Part, batches: object, log: ReplicaLog) -> object:
        return method(self, msgspec.structs.replace(part, is_free=True), batches, log)

    return take


def _impatiently(self: Follower, log: ReplicaLog) -> ReplicaLog:
    """Follower._asked_for of one that does not wait until nobody counts on it."""
    return log if log.hole_offset is None else WholePart(log, log.hole_offset)


def _ending_at_any_refusal(
    self: Leader, proposal: IsrProposal, leader_epoch: int, partition_epoch: int, log: ReplicaLog
) -> bool:
    """Leader.refused of one that thinks that no copy of its proposal was taken before."""
    return _refused(self, proposal, proposal.leader_epoch, proposal.partition_epoch, log)


def _not_saying(image: MetadataImage, partition: Partition) -> list[MetadataRecord]:
    """unclean._elected, without a word of it in the metadata."""
    return [msgspec.structs.replace(one, unclean_epoch=-1) for one in _elected(image, partition)]


_advance = Leader.advance
_elected = unclean_module._elected
_refused = Leader.refused

MUTANTS: dict[str, Mutant] = {
    "truncation to the high watermark instead of by epoch": Mutant(
        [(SimBroker, "truncates_to_watermark", True)], ("kill", "pause", "isolate")
    ),
    "a fetch without the current epoch": Mutant(
        [
            (leader_module, "require_epoch", lambda epoch, view: None),
            (Leader, "_divergence", _by_offsets_alone),
            (Follower, "take", _believing(Follower.take)),
        ]
    ),
    "acks before the flush, and power is lost": Mutant(
        [(SimLog, "acks_before_flush", True)], ("power", "rough")
    ),
    "minority corruption accepted as truth": Mutant(
        [(SimController, "believes_restarted", True)], ("rot", "kill"), SimController
    ),
    "a proposed ISR counts before the controller agrees": Mutant([(Leader, "advance", _counting_proposals)]),
    "committed with fewer than min.insync.replicas": Mutant([(Leader, "advance", _without_minimum)]),
    "a replica joins the ISR before it has caught up": Mutant([(Leader, "_may_join", _joins_at_once)]),
    "the ISR changes whatever the proposal was made against": Mutant(
        [(SimController, "compares", False)], controller=SimController
    ),
    "a leader that restarted goes on in its epoch": Mutant(
        [(SimController, "bumps_on_restart", False)], controller=SimController
    ),
    "any replica is elected when none is in sync": Mutant(
        [(SimController, "elects_anyone", True)], controller=SimController
    ),
    "a leader that resumes goes on in its epoch": Mutant(
        [(Replica, "follow", _starting_afresh(Replica.follow))],
        ("reopen", "reopen", "reopen", "kill", "isolate", "rough", "slow_disk"),
        seen_at=185,
    ),
    "who opened a rotten log anew goes on to lead, in another epoch": Mutant(
        [(Replica, "_due_renewal", _trusting_its_log), (leaders_module, "relieved", _trusting_its_word)],
        ("reopen", "reopen", "reopen", "kill", "isolate", "slow_disk"),
    ),
    "a replica with a hole counts as in sync": Mutant(
        [
            (Replica, "_due_renewal", _seeing_no_hole(Replica._due_renewal)),
            (Follower, "want", _seeing_no_hole(Follower.want)),
            (Follower, "take", _seeing_no_hole(Follower.take)),
        ],
        HOLE_KINDS,
    ),
    "who has a hole goes on to lead": Mutant(
        [(Replica, "_due_renewal", _seeing_no_hole(Replica._due_renewal))], HOLE_KINDS
    ),
    "a log is cut to its hole while others count on it": Mutant(
        [
            (Follower, "_asked_for", _impatiently),
            (Follower, "take", _taking_itself_for_free(Follower.take)),
        ],
        HOLE_KINDS,
    ),
    "a refused copy ends a proposal that was taken": Mutant(
        [(Leader, "refused", _ending_at_any_refusal)],
        ("rough", "rough", "rough", "kill", "isolate", "slow_disk"),
        seen_at=486,
    ),
    "after an unclean election what was committed before it is stood by": Mutant(
        [(Replica, "follow", _remembering(Replica.follow))], unclean=True, seen_at=34
    ),
    "an unclean election that nobody is told of": Mutant(
        [(unclean_module, "_elected", _not_saying)], unclean=True, seen_at=3
    ),
}
