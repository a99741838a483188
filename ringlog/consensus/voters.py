"""Who the voters are, at which index that changed, and what counts as a majority of them. Pure.

A change counts as soon as it is in the log. Until it is committed, a majority of the old and of the new voters is
needed for everything: so no two majorities can ever miss each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ringlog.consensus.messages import Entry, Voter, decode_voters
from ringlog.errors import check

VoterSet = tuple[Voter, ...]


class VoterHistory:
    """The voters as of the snapshot, and as of each change since."""

    def __init__(self, voters: VoterSet, index: int) -> None:
        check(len(voters) > 0, "a quorum has at least one voter")
        self._changes: list[tuple[int, VoterSet]] = [(index, voters)]

    @property
    def latest(self) -> VoterSet:
        return self._changes[-1][1]

    @property
    def changed_at(self) -> int:
        """The index of the latest change."""
        return self._changes[-1][0]

    def appended(self, entries: Iterable[Entry]) -> None:
        """Entries are in the log now."""
        for entry in entries:
            if entry.kind == "voters":
                check(entry.index > self.changed_at, "changes of the voters come in the order of the log")
                self._changes.append((entry.index, decode_voters(entry.data)))

    def truncated(self, last_index: int) -> None:
        """The log was cut behind this index."""
        while self.changed_at > last_index:
            check(len(self._changes) > 1, "what is committed is never cut")
            self._changes.pop()

    def compacted(self, index: int) -> None:
        """A snapshot stands for the log up to this index: what lies before the last change in it is history."""
        while len(self._changes) > 1 and self._changes[1][0] <= index:
            del self._changes[0]

    def as_of(self, index: int) -> VoterSet:
        """The voters of the log up to an index that no snapshot stands for."""
        found = [voters for changed_at, voters in self._changes if changed_at <= index]
        check(bool(found), "nobody asks for voters older than the snapshot")
        return found[-1]

    def sets(self, commit_index: int) -> Sequence[VoterSet]:
        """All sets of which a majority is needed."""
        uncommitted = [voters for changed_at, voters in self._changes if changed_at > commit_index]
        return [self.as_of(commit_index), *uncommitted]

    def includes(self, member: Voter) -> bool:
        """Whether this one is a voter by the latest change."""
        return any(voter.admits(member) for voter in self.latest)


def majority(voters: VoterSet) -> int:
    """How many make a majority.

    >>> majority((Voter(1, ""), Voter(2, ""), Voter(3, "")))
    2
    """
    return len(voters) // 2 + 1


def has_majority(sets: Sequence[VoterSet], present: Callable[[Voter], bool]) -> bool:
    """Whether a majority of every set is present; `present` looks at the member in a voter's place."""
    return all(sum(present(voter) for voter in voters) >= majority(voters) for voters in sets)


def index_of_majority(sets: Sequence[VoterSet], index_at: Callable[[Voter], int]) -> int:
    """The highest index that a majority of every set has; `index_at` says what the member in a voter's place has."""
    return min(
        sorted((index_at(voter) for voter in voters), reverse=True)[majority(voters) - 1] for voters in sets
    )
