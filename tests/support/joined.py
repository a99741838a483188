"""The links of a small node in one process: what the supervisor makes before it forks."""

from __future__ import annotations

from ringlog.ring.board import Board, Links, Topology
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.link import create_link
from ringlog.ring.shm import SharedMemory
from ringlog.ring.stats import Stats, StatsPage


class JoinedProcesses:
    """A board, doorbells and links, and for each process its ends of them."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.board = Board(memoryview(bytearray(Board.bytes_needed(topology))), topology)
        self.bells = [Doorbell.create() for _ in range(topology.process_count)]
        self.memories: dict[int, SharedMemory] = {}
        self._opened: list[Links] = []
        self._generation = 0
        page = memoryview(bytearray(StatsPage.bytes_needed(topology.process_count)))
        self.stats_page = StatsPage(page, topology.process_count)
        for link in range(len(topology.links)):
            self._make(link)
        self.board.bump()

    def _make(self, link: int) -> None:
        old = self.memories.pop(link, None)
        if old is not None:
            old.unlink()
            old.close()
        self._generation += 1
        spec = self.topology.links[link]
        memory = create_link(
            "unit",
            request_bytes=spec.request_bytes,
            reply_bytes=spec.reply_bytes,
            generation=self._generation,
        )
        self.memories[link] = memory
        self.board.publish_link(link, memory.name, self._generation)

    def replace(self, process: int) -> None:
        """A process died: all its links are made anew."""
        for link in self.topology.links_of(process):
            self._make(link)
        self.board.bump()

    def links(self, process: int) -> Links:
        """The ends of one process; nothing is opened before `refresh`."""
        links = Links(process, self.board, self.bells)
        self._opened.append(links)
        return links

    def stats(self, process: int) -> Stats:
        return Stats(self.stats_page, process)

    def close(self) -> None:
        for links in self._opened:
            for end in links.ends.values():
                end.close()
        for memory in self.memories.values():
            memory.unlink()
            memory.close()
        for bell in self.bells:
            bell.close()
