"""Known failures of consensus implementations, each as a broken voter that the checkers must catch."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ringlog.consensus.leading import Leadership
from ringlog.consensus.messages import AppendRequest, Beat, HardState, Message, Voter, VoteRequest
from ringlog.consensus.raft import Raft
from ringlog.consensus.saving import Restored, Save
from ringlog.consensus.timing import Timing
from tests.sim.disk import Rotten
from tests.sim.machine import Machine
from tests.sim.quorum_node import QuorumNode

HASTY = Timing(election_ms=40.0, beat_ms=15.0)
"""Candidates that come so soon after each other often meet in one epoch."""


class ForgetsVote(QuorumNode):
    """The vote is not persisted: after a restart it is given a second time."""

    timing = HASTY

    def save(self, save: Save, then: Callable[[], None]) -> None:
        if save.hard_state is not None:
            state = HardState(save.hard_state.epoch)
            save = Save(save.number, state, save.snapshot, save.entries)
        super().save(save, then)


class ForgetsEpoch(QuorumNode):
    """Neither epoch nor vote is persisted."""

    def save(self, save: Save, then: Callable[[], None]) -> None:
        super().save(Save(save.number, None, save.snapshot, save.entries), then)


class SendsBeforeFlush(QuorumNode):
    """Answers leave while what they promise is still in the page cache."""

    def save(self, save: Save, then: Callable[[], None]) -> None:
        super().save(save, lambda: None)
        then()


class TrustsDamagedDisk(QuorumNode):
    """A log that rotted is cut where it rotted, and the voter goes on as if it had promised nothing behind."""

    def lay_aside(self, machine: Machine) -> None:
        journal = machine.disk.journal("log")
        at = next(at for at, item in enumerate(journal.items) if isinstance(item, Rotten))
        journal.truncate(at)


class IsTheSameOnAnyDisk(QuorumNode):
    """A node whose disk was replaced is taken for the voter that it was."""

    def load(self, machine: Machine, voters: tuple[Voter, ...]) -> tuple[str, Restored]:
        if machine.disk.read("disk_id") is None or any(
            isinstance(item, Rotten) for item in machine.disk.journal("log").items
        ):
            machine.disk.wipe()
            machine.disk.write("disk_id", f"d{machine.node_id}")
        return super().load(machine, voters)


class _FollowsOldLeaders(Raft):
    def receive(self, message: Message, now_ms: float) -> None:
        if (
            isinstance(message, AppendRequest | Beat)
            and message.epoch < self.epoch
            and self._leadership is None
        ):
            message = msgspec.structs.replace(message, epoch=self.epoch)
        super().receive(message, now_ms)


class FollowsOldLeaders(QuorumNode):
    """Entries are taken from a leader whose epoch is over: the message's epoch is not compared with the current one."""

    core = _FollowsOldLeaders


class _SkipsLogMatching(Raft):
    def _meets(self, request: AppendRequest) -> bool:
        return request.prev_index <= self.log.last_index


class SkipsLogMatching(QuorumNode):
    """Entries are appended behind an entry of any epoch: logs are compared by length only."""

    core = _SkipsLogMatching


class _VotesForAnyone(Raft):
    def _judge_candidate(self, request: VoteRequest, now_ms: float) -> None:
        complete = msgspec.structs.replace(request, last_epoch=2**62)
        super()._judge_candidate(complete, now_ms)


class VotesForAnyone(QuorumNode):
    """A candidate is elected although it lacks what is committed."""

    core = _VotesForAnyone


class _CommitsByCount(Leadership):
    def advance_commit(self) -> None:
        raft = self._raft
        holders = sorted([raft.flushed_index, *(peer.match_index for peer in self.peers.values())])
        # Counts its own entries before they are flushed, and is content with half.
        index = max(holders[-(len(holders) // 2) :])
        if index > raft.commit_index:
            raft.commit_to(min(index, raft.log.last_index))


class _CommitsAlone(Raft):
    leadership = _CommitsByCount


class CommitsWithoutMajority(QuorumNode):
    """An entry counts as committed when less than a majority has it."""

    core = _CommitsAlone


MUTANTS: tuple[type[QuorumNode], ...] = (
    ForgetsVote,
    ForgetsEpoch,
    SendsBeforeFlush,
    TrustsDamagedDisk,
    IsTheSameOnAnyDisk,
    FollowsOldLeaders,
    SkipsLogMatching,
    VotesForAnyone,
    CommitsWithoutMajority,
)

RESTARTS = ("restart", "rough", "isolate", "restart", "rough", "power")
STORMS: dict[type[QuorumNode], tuple[str, ...]] = dict.fromkeys((ForgetsVote, SendsBeforeFlush), RESTARTS)
"""Mutants that show only when one fault comes right after another, and in which storms they do."""

SEEN_AT: dict[type[QuorumNode], int] = {
    ForgetsVote: 63,
    ForgetsEpoch: 1,
    SendsBeforeFlush: 23,
    TrustsDamagedDisk: 23,
    IsTheSameOnAnyDisk: 6,
    FollowsOldLeaders: 80,
    SkipsLogMatching: 50,
    VotesForAnyone: 3,
    CommitsWithoutMajority: 9,
}
"""The first seed that caught each of them when it was looked for: tried first, so that a test takes seconds. A
change to the core or the simulator moves it; then all seeds are tried."""
