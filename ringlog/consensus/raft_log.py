"""The log of a voter in memory: the entries behind the last snapshot, and where two logs part. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ringlog.consensus.messages import Entry, Snapshot
from ringlog.errors import check


class RaftLog:
    """Entries with consecutive indexes; epochs never fall."""

    def __init__(self, snapshot: Snapshot, entries: Sequence[Entry]) -> None:
        self.snapshot = snapshot
        self._entries: list[Entry] = []
        self.append(entries)

    @property
    def last_index(self) -> int:
        return self.snapshot.last_index + len(self._entries)

    @property
    def last_epoch(self) -> int:
        return self._entries[-1].epoch if self._entries else self.snapshot.last_epoch

    def epoch_at(self, index: int) -> int | None:
        """The epoch of an entry; None where the log has none, or has it no more."""
        if index == self.snapshot.last_index:
            return self.snapshot.last_epoch
        entry = self.entry(index)
        return entry.epoch if entry is not None else None

    def entry(self, index: int) -> Entry | None:
        """The entry at an index, if it is there."""
        at = index - self.snapshot.last_index - 1
        return self._entries[at] if 0 <= at < len(self._entries) else None

    def slice(self, first_index: int, *, bytes_max: int | None = None) -> tuple[Entry, ...]:
        """Entries from an index on, one at least, as many as fit."""
        at = first_index - self.snapshot.last_index - 1
        check(at >= 0, "what a snapshot stands for is not in the log")
        if bytes_max is None:
            return tuple(self._entries[at:])
        found: list[Entry] = []
        for entry in self._entries[at:]:
            bytes_max -= len(entry.data)
            if found and bytes_max < 0:
                break
            found.append(entry)
        return tuple(found)

    def append(self, entries: Sequence[Entry]) -> None:
        """Put entries behind the last one."""
        for entry in entries:
            check(entry.index == self.last_index + 1, "indexes are consecutive")
            check(entry.epoch >= self.last_epoch, "epochs never fall")
            self._entries.append(entry)

    def first_conflict(self, entries: Sequence[Entry]) -> int:
        """How many of these entries the log has already: the rest differ, or are new."""
        for at, entry in enumerate(entries):
            if entry.index > self.snapshot.last_index and self.epoch_at(entry.index) != entry.epoch:
                return at
        return len(entries)

    def truncate(self, last_index: int) -> None:
        """Cut behind an index."""
        check(last_index >= self.snapshot.last_index, "what a snapshot stands for is never cut")
        del self._entries[last_index - self.snapshot.last_index :]

    def compact(self, snapshot: Snapshot) -> None:
        """Let a snapshot take the place of the entries that it stands for."""
        check(self.epoch_at(snapshot.last_index) == snapshot.last_epoch, "a snapshot is of this log")
        del self._entries[: snapshot.last_index - self.snapshot.last_index]
        self.snapshot = snapshot

    def restart(self, snapshot: Snapshot) -> None:
        """Forget everything: the log begins anew behind a snapshot."""
        self._entries.clear()
        self.snapshot = snapshot

    def up_to_date(self, last_index: int, last_epoch: int) -> bool:
        """Whether a log that ends so has all that this one may have committed."""
        return (last_epoch, last_index) >= (self.last_epoch, self.last_index)

    def last_at_most(self, index: int, epoch: int) -> int:
        """The highest index, not above the given one, whose entry is of no higher epoch: there two logs may meet."""
        index = min(index, self.last_index)
        while index > self.snapshot.last_index:
            if self._entries[index - self.snapshot.last_index - 1].epoch <= epoch:
                break
            index -= 1
        return index
