"""The side of a process's loop that faces its rings: takes what they hold, and follows processes that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringlog.errors import RingClosed, RingCorrupt, RingStale
from ringlog.ring.board import Links
from ringlog.ring.link import LinkEnd


class RingService(Protocol):
    """What becomes of that which comes through the rings."""

    def take_frames(self, process: int, end: LinkEnd) -> bool:
        """Take what a process has sent; whether there was something."""

    def connect(self, process: int, end: LinkEnd, region: memoryview | None) -> None:
        """A process is there, or there anew; `region`: the memory that it lends from."""


class RingSide:
    """The rings to all other processes of a node."""

    def __init__(
        self, links: Links, service: RingService, regions: Callable[[int], memoryview | None]
    ) -> None:
        self._links = links
        self._service = service
        self._regions = regions

    def take_frames(self) -> bool:
        """One turn for each ring; whether any of them had something."""
        busy = False
        for process, end in self._links.ends.items():
            try:
                busy = self._service.take_frames(process, end) or busy
            except (RingStale, RingClosed, RingCorrupt):
                continue  # its process is gone or mad: the supervisor will make a new one
        return busy

    def follow_links(self) -> None:
        """Let go of rings whose processes are gone, and take up new ones."""
        for change in self._links.refresh():
            if change.old is not None:
                self._drain(change.peer, change.old)
                change.old.close()
            self._service.connect(change.peer, change.new, self._regions(change.peer))

    def _drain(self, process: int, old: LinkEnd) -> None:
        """What a dead process had still answered counts."""
        try:
            while self._service.take_frames(process, old):
                continue
        except (RingStale, RingClosed, RingCorrupt):
            return
