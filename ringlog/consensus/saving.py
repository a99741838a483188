"""Save, then send: the order that Raft stands on, as types. Pure.

`Raft.take()` gives a `Save`; only `Raft.saved(save)` gives what may leave this machine, a `Released`. A caller that
has not yet flushed has nothing in its hands that it could send too early.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ringlog.consensus.messages import Entry, HardState, Message, Snapshot


@dataclass(frozen=True, slots=True)
class Save:
    """What must be flushed before `Raft.saved(save)` is called. Often nothing: then it is called at once."""

    number: int
    hard_state: HardState | None
    """Replaces the one on disk."""
    snapshot: Snapshot | None
    """Replaces everything on disk: the entries below are then the whole log behind it."""
    entries: tuple[Entry, ...]
    """What is on disk at the index of the first of them, and behind it, is cut."""

    @property
    def empty(self) -> bool:
        return self.hard_state is None and self.snapshot is None and not self.entries


class Outgoing(NamedTuple):
    """A message and the node that it is for."""

    to: int
    message: Message


class Released(NamedTuple):
    """What may be told, now that everything it rests on is flushed."""

    messages: list[Outgoing]
    restored: Snapshot | None
    """The state machine must begin anew from this, before the entries below."""
    committed: list[Entry]
    """Entries that are committed since the last time, to be applied in this order."""


class Restored(NamedTuple):
    """What a voter finds on its disk when it starts."""

    hard_state: HardState
    snapshot: Snapshot
    entries: tuple[Entry, ...]
