"""The side of a process's loop that faces its rings: takes what they hold, and follows processes that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringlog.errors import RingClosed, RingCorrupt, RingStale
from ringlog.ring.board import Links
from ringlog.ring.link import LinkEnd
from ringlog.ring.ring import Message


class RingService(Protocol):
    """What becomes of that which comes through the rings."""

    def take_frames(self, process: int, end: LinkEnd, messages: list[Message]) -> None:
        """Take what a process has sent, and give it back to the ring's reader."""

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
        self._ends: list[tuple[int, LinkEnd]] = []
        """As `links` has them since they changed last: each pass looks at all, most find nothing."""

    def take_frames(self) -> bool:
        """One turn for each ring; whether any of them had something."""
        busy = False
        for process, end in self._ends:
            try:
                messages = end.reader.read_all()
                if messages:
                    busy = True
                    self._service.take_frames(process, end, messages)
            except (RingStale, RingClosed, RingCorrupt):
                continue  # its process is gone or mad: the supervisor will make a new one
        return busy

    def pump(self) -> bool:
        """Send what waits for room in a ring; False while something still does."""
        room = True
        for _, end in self._ends:
            if end.outbox_bytes:
                room = end.pump() and room
        return room

    def follow_links(self) -> None:
        """Let go of rings whose processes are gone, and take up new ones."""
        changes = self._links.refresh()
        if not changes:
            return
        self._ends = list(self._links.ends.items())
        for change in changes:
            if change.old is not None:
                self._drain(change.peer, change.old)
                change.old.close()
            self._service.connect(change.peer, change.new, self._regions(change.peer))

    def _drain(self, process: int, old: LinkEnd) -> None:
        """What a dead process had still answered counts."""
        try:
            while messages := old.reader.read_all():
                self._service.take_frames(process, old, messages)
        except (RingStale, RingClosed, RingCorrupt):
            return
