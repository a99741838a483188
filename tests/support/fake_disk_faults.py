"""What goes wrong on a fake disk, and when: a plan that a test writes down before its workload."""

from __future__ import annotations

import errno as errnos
from dataclasses import dataclass, field
from typing import NamedTuple

FAILABLE = frozenset(
    {"open", "rename", "remove", "truncate", "make_dir", "remove_dir"}
    | {"write", "read", "flush", "flush_dir", "preallocate"}
)


class Call(NamedTuple):
    """One call that a disk was asked for, in order of asking: a place where something can go wrong."""

    number: int
    kind: str
    path: str
    position: int = 0
    length: int = 0
    token: int = 0
    durable: bool = False


class PowerLoss(BaseException):
    """The power went away in the middle of the workload. Not an Exception: no handler may catch it."""


@dataclass(slots=True)
class Faults:
    """A plan of faults. Calls are counted from 0, overall (`Call.number`) or within one kind.

    >>> faults = Faults()
    >>> faults.fail("flush", nth=2, errno=errnos.EIO)
    >>> faults.short_write(nth=0, nbytes=512)
    """

    space_bytes: int | None = None
    """Room for the content of all files together; what does not fit gets a short write, then ENOSPC."""
    power_loss_at_step: int | None = None
    """The step (`FakeDisk.steps`) that raises PowerLoss instead of happening."""
    unreadable: set[str] = field(default_factory=set)
    """Files whose reads all fail with EIO."""
    _by_number: dict[int, int] = field(default_factory=dict)
    _by_kind: dict[tuple[str, int], int] = field(default_factory=dict)

    def fail_call(self, number: int, *, errno: int = errnos.EIO) -> None:
        """The call with this number fails."""
        self._by_number[number] = -errno

    def fail(self, kind: str, *, nth: int, errno: int = errnos.EIO) -> None:
        """The nth call of a kind fails."""
        assert kind in FAILABLE, f"{kind} is not one of {sorted(FAILABLE)}"
        self._by_kind[kind, nth] = -errno

    def short_write(self, *, nth: int, nbytes: int) -> None:
        """The nth write moves only its first `nbytes`."""
        self._by_kind["write", nth] = nbytes

    def short_call(self, number: int, *, nbytes: int) -> None:
        """The call with this number, a write, moves only its first `nbytes`."""
        self._by_number[number] = nbytes

    def verdict(self, number: int, kind: str, nth: int, path: str = "") -> int | None:
        """What the plan says of a call: None (it works), a negative errno, or the bytes of a short write."""
        if kind == "read" and path in self.unreadable:
            return -errnos.EIO
        if number in self._by_number:
            return self._by_number[number]
        return self._by_kind.get((kind, nth))
