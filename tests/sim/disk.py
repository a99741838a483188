"""The disk of a simulated machine: what was written and not flushed may be gone after a loss of power.

It keeps values, not bytes: how bytes tear is the business of the fake disk under the real log. Here a *journal* is a
list that grows at its end and can be cut, and a *cell* is one value that is replaced as a whole. An item that rotted
reads as `Rotten`: the checksums of a real disk format tell rot from truth, so that much is taken for granted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.sim.scheduler import Scheduler


class Rotten(NamedTuple):
    """What stands where something was flushed and can no longer be read."""

    at: int


class Journal:
    """A list on disk. `items` is what a read gives now; what a crash leaves is another matter."""

    def __init__(self, unflushed: dict[Journal, None]) -> None:
        self.items: list[Any] = []
        self.flushed: list[Any] = []
        """What a loss of power leaves at least."""
        self._unflushed = unflushed
        """All of the disk that have something to flush: this one puts itself there, and takes itself out."""
        self._pending: list[Callable[[list[Any]], None]] = []
        self._hardened = 0

    def append(self, item: Any) -> None:
        """Write behind the end. Items are taken as they are: do not change them afterwards."""
        self._write(lambda items: items.append(item))

    def truncate(self, length: int) -> None:
        """Cut to this many items."""

        def cut(items: list[Any]) -> None:
            del items[length:]

        self._write(cut)

    def replace(self, items: list[Any]) -> None:
        """Give the whole journal another content, as a rename does: all of it or none."""
        kept = list(items)

        def swap(old: list[Any]) -> None:
            old[:] = kept

        self._write(swap)

    def rot(self, at: int) -> None:
        """What was flushed here can no longer be read."""
        self.put(at, Rotten(at))

    def put(self, at: int, item: Any) -> None:
        """Something else stands where this was flushed."""
        self.flushed[at] = self.items[at] = item

    def _write(self, change: Callable[[list[Any]], None]) -> None:
        change(self.items)
        self._pending.append(change)
        self._unflushed[self] = None

    @property
    def written(self) -> int:
        """Number of the last change: counted over the life of the disk."""
        return self._hardened + len(self._pending)

    def harden(self, upto: int) -> None:
        """Changes up to this number survive from now on."""
        count = max(0, upto - self._hardened)
        for change in self._pending[:count]:
            change(self.flushed)
        del self._pending[:count]
        self._hardened += count
        if not self._pending:
            self._unflushed.pop(self, None)

    def lose(self, scheduler: Scheduler) -> None:
        """The power went: of what was not flushed, as much is there as the disk had got to."""
        self.harden(scheduler.random.randint(self._hardened, self.written))
        self._pending.clear()
        self._unflushed.pop(self, None)
        self.items = list(self.flushed)


class SimDisk:
    """All that a machine keeps over a restart."""

    def __init__(self, scheduler: Scheduler, flush_ms: tuple[float, float] = (0.3, 3.0)) -> None:
        self._scheduler = scheduler
        self.flush_ms = flush_ms
        """How long a flush takes: raise it for a slow disk."""
        self.incarnation = 0
        """Changes when the machine stops: a flush that was under way then tells nobody."""
        self._due_ms = 0.0
        self._journals: dict[str, Journal] = {}
        self._cells: dict[str, Journal] = {}
        self._unflushed: dict[Journal, None] = {}
        """So that a flush costs what was written, however many files there are."""

    def journal(self, name: str) -> Journal:
        """The journal of this name; empty when there was none."""
        return self._journals.setdefault(name, Journal(self._unflushed))

    def journals(self) -> dict[str, Journal]:
        """All journals, for those who judge or break them."""
        return self._journals

    def read(self, cell: str, default: Any = None) -> Any:
        """The value of a cell."""
        found = self._cells.get(cell)
        return found.items[0] if found is not None and found.items else default

    def write(self, cell: str, value: Any) -> None:
        """Replace a cell's value, as a whole: a crash leaves the old or the new one."""
        self._cells.setdefault(cell, Journal(self._unflushed)).replace([value])

    def flush(self, then: Callable[[], None]) -> None:
        """Make durable all that was written so far, and then say so, in the order of asking."""
        written = [(file, file.written) for file in self._unflushed]
        incarnation, scheduler = self.incarnation, self._scheduler
        self._due_ms = max(self._due_ms, scheduler.now_ms + scheduler.random.uniform(*self.flush_ms))

        def done() -> None:
            if self.incarnation == incarnation:
                for file, upto in written:
                    file.harden(upto)
                then()

        scheduler.after(self._due_ms - scheduler.now_ms, done)

    def stop(self) -> None:
        """The process is gone, the machine is not: what was written stays, flushed or not."""
        self.incarnation += 1

    def lose_power(self) -> None:
        """What was not flushed is lost, or some of it: as much as the disk had got to."""
        self.incarnation += 1
        for file in self._files():
            file.lose(self._scheduler)

    def wipe(self) -> None:
        """A new, empty disk."""
        self.incarnation += 1
        self._journals.clear()
        self._cells.clear()
        self._unflushed.clear()

    def _files(self) -> list[Journal]:
        return [*self._journals.values(), *self._cells.values()]
