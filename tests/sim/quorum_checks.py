"""What must never be seen in a quorum: looked at after every step of every voter, from outside.

The checker keeps its own account of all that was ever committed anywhere, and of who led when.
"""

from __future__ import annotations

from ringlog.consensus.messages import Message, Snapshot, Voter, VoteReply, VoteRequest
from ringlog.consensus.roles import Role
from tests.sim.disk import Rotten
from tests.sim.machine import Machine
from tests.sim.quorum_node import QuorumNode
from tests.sim.replay import CheckFailed


def require(condition: bool, what: str) -> None:
    if not condition:
        raise CheckFailed(what)


class QuorumChecker:
    """One leader per epoch, epochs that never fall, one value per committed index, and none ever lost."""

    def __init__(self) -> None:
        self._leaders: dict[int, Voter] = {}
        self._epochs: dict[Voter, int] = {}
        self._votes: dict[tuple[Voter, int], int] = {}
        self._commit_index: dict[tuple[Voter, int], int] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}
        """Epoch and data of every committed index, as first seen."""

    def sent(self, node: QuorumNode, to: int, message: Message) -> None:
        """What a disk's owner has told others, it must stand by in all its lives."""
        if isinstance(message, VoteRequest | VoteReply) and message.pre:
            return
        me = node.raft.me
        if message.epoch < self._epochs.get(me, 0):
            raise CheckFailed(f"{me} fell back to epoch {message.epoch}")
        self._epochs[me] = message.epoch
        if isinstance(message, VoteReply) and message.granted:
            chosen = self._votes.setdefault((me, message.epoch), to)
            require(chosen == to, f"{me} voted for {chosen} and for {to} in epoch {message.epoch}")

    def stepped(self, node: QuorumNode) -> None:
        raft = node.raft
        me, incarnation = raft.me, node.machine.incarnation
        if raft.role is Role.LEADER:
            leader = self._leaders.setdefault(raft.epoch, me)
            if leader != me:
                raise CheckFailed(f"epoch {raft.epoch} has two leaders: {leader} and {me}")
        before = self._commit_index.get((me, incarnation), 0)
        if raft.commit_index == before:
            return  # most steps: and words for what did not go wrong cost more than all of the rest
        require(
            raft.commit_index > before, f"{me}: the commit index fell from {before} to {raft.commit_index}"
        )
        self._commit_index[me, incarnation] = raft.commit_index
        self._look_at_committed(node, before)

    def _look_at_committed(self, node: QuorumNode, before: int) -> None:
        raft = node.raft
        for index in range(max(before, raft.log.snapshot.last_index) + 1, raft.commit_index + 1):
            entry = raft.log.entry(index)
            if entry is None:
                raise CheckFailed(f"{raft.me} committed {index} and does not have it")
            known = self.committed.setdefault(index, (entry.epoch, entry.data))
            if known != (entry.epoch, entry.data):
                raise CheckFailed(f"{index} is {known} and, at {raft.me}, {(entry.epoch, entry.data)}")

    def finish(self, machines: list[Machine], acked: dict[int, set[int]]) -> None:
        """At the end, with everyone up and connected: all agree, and nothing acknowledged is missing."""
        nodes: list[QuorumNode] = [machine.process for machine in machines]
        longest = max(nodes, key=lambda node: len(node.applied)).applied
        for node in nodes:
            require(node.applied == longest[: len(node.applied)], f"{node.raft.me} applied something else")
        held: dict[int, set[int]] = {}
        for index, data in longest:
            held.setdefault(int(data), set()).add(index)
        for value, indexes in acked.items():
            found = held.get(value, set())
            require(indexes <= found, f"{value} was acknowledged at {indexes}, and is at {found}")
        require(len(acked) > 0, "the clients got something done")

    def majority_holds(self, machines: list[Machine]) -> None:
        """Every committed entry that no snapshot stands for is flushed by a majority, as their disks say."""
        holders = dict.fromkeys(self.committed, 0)
        for machine in machines:
            for item in machine.disk.journal("log").flushed:
                if isinstance(item, Snapshot):
                    for index in range(1, item.last_index + 1):
                        if index in holders:
                            holders[index] += 1
                elif not isinstance(item, Rotten) and item.index in holders:
                    holders[item.index] += self.committed[item.index] == (item.epoch, item.data)
        for index, count in holders.items():
            require(count > len(machines) // 2, f"{index} is committed, and {count} disks have it")
