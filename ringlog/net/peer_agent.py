"""The loop of the process that speaks with other nodes: sockets ↔ rings, and one place to wait."""

from __future__ import annotations

import mmap
import os
import time
import weakref
from collections.abc import Callable
from functools import partial

from ringlog.net.host import host_id
from ringlog.net.peer_near import KEY_BYTES, MEMORY_BYTES, Landing, Offer
from ringlog.net.peer_service import PeerService
from ringlog.net.peer_socket import PeerSockets
from ringlog.net.ring_side import RingSide
from ringlog.net.shared_memory import make_shared, map_shared
from ringlog.ring.board import Board, Links, ProcessState, Topology
from ringlog.ring.stats import LoopClock, Stats

IDLE_WAIT_MS = 500
FULL_RING_WAIT_MS = 1
"""While a frame waits for room in a ring: nobody rings when a reader has made some."""
SHOW_US = 250_000


def share_landing() -> Landing | None:
    """Memory of this process that another node may put answers into; None where the system gives none."""
    try:
        descriptor = make_shared("ringlog-peer", MEMORY_BYTES)
    except OSError:
        return None  # forbidden, or out of descriptors: answers come through the socket
    try:
        memory = memoryview(mmap.mmap(descriptor, MEMORY_BYTES))
    except OSError:
        os.close(descriptor)
        return None  # the mapping takes another descriptor, and room
    landing = Landing(memory, Offer(host_id(), os.getpid(), descriptor, os.urandom(KEY_BYTES)))
    weakref.finalize(landing, os.close, descriptor).atexit = False
    return landing


class PeerAgent:
    """The peer process's work."""

    def __init__(
        self,
        process: int,
        board: Board,
        links: Links,
        regions: Callable[[int], memoryview | None],
        sockets: PeerSockets,
        stats: Stats,
        stopping: Callable[[], bool],
        *,
        spin_us: int = 0,
    ) -> None:
        """`spin_us`: how long it looks for more to do before it sleeps."""
        self._process = process
        self._board = board
        self._links = links
        self._sockets = sockets
        self._stats = stats
        self._stopping = stopping
        self._spin_us = spin_us
        self._spins_until_us = 0
        self.service = PeerService(
            stats,
            controller=Topology.CONTROLLER,
            shard_of=lambda number: board.topology.role(number)[1],
            send=sockets.send,
            answer=sockets.answer,
            intact=links.intact,
            host=host_id(),
            share=share_landing,
            map_memory=partial(map_shared, writable=True),
        )
        self._rings = RingSide(links, self.service, regions)
        self._clock = LoopClock(stats)
        self._version = -1
        self._is_ready = False
        self._shown_us = 0

    def run(self) -> None:
        """Work until told to stop. Nobody is waited for: what is under way is asked for again, elsewhere."""
        try:
            while not self._stopping():
                self.cycle()
            self._stats.show()
        finally:
            self._sockets.close()

    def cycle(self) -> None:
        """One pass."""
        now_us = time.monotonic_ns() // 1000
        service = self.service
        service.at(now_us)
        self._clock.work(now_us)
        self._rings.follow_links()
        busy = self._rings.take_frames()
        if service.image.version != self._version:
            self._version = service.image.version
            self._sockets.follow(service.calls)
        busy = self._sockets.pump(service) or busy
        if busy:
            self._spins_until_us = now_us + self._spin_us
        greet_ms = service.greet()
        room = service.retry_overflow()
        room = self._rings.pump() and room
        self._show(now_us)
        if service.has_image and not self._is_ready:
            self._is_ready = True
            self._board.set_state(self._process, ProcessState.READY)
        if now_us < self._spins_until_us:
            self._sockets.wait(0)
            return
        wait_ms = IDLE_WAIT_MS if room else FULL_RING_WAIT_MS
        if greet_ms is not None:
            wait_ms = min(wait_ms, max(0, greet_ms - now_us // 1000))
        self._sleep(wait_ms)

    def _sleep(self, wait_ms: int) -> None:
        """Wait for a message, a connection or a doorbell, unless a ring has something already."""
        if not self._links.announce_wait():
            wait_ms = 0
        self._clock.rest(time.monotonic_ns() // 1000)
        self._links.end_wait(rung=self._sockets.wait(wait_ms))

    def _show(self, now_us: int) -> None:
        if now_us - self._shown_us < SHOW_US:
            return
        self._shown_us = now_us
        self._sockets.cut_floods()
        counts, service = self._stats.counts, self.service
        self._sockets.count_connections(counts)
        counts["sessions"] = len(service.callers.by_node)
        self._stats.show()
