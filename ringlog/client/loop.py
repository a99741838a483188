"""The I/O thread of a client: it alone touches the sockets; others hand it requests and wake it.

It knows nothing of clients: it holds no reference to one, so that a client that nobody holds can go.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from ringlog.client.cluster_view import ClusterView
from ringlog.client.futures import call_safely
from ringlog.client.links import Links
from ringlog.client.near_memory import Shares
from ringlog.errors import ClientClosed, InvariantBroken, RinglogError
from ringlog.limits import MIB
from ringlog.net.dealer import Sockets
from ringlog.net.session import ANY_NODE, Request

Tick = Callable[[float], float | None]
Ended = Callable[[RinglogError], None]

_LARGE_BLOCK_BYTES = 31 * MIB
"""Just below the largest block that malloc learns from."""


class Loop:
    """One thread with all connections of a client. `start` it once; a loop that was stopped is not started again."""

    def __init__(
        self, view: ClusterView, name: str, on_silent: Callable[[], None], near: Shares | None = None
    ) -> None:
        """`on_silent` is called on the thread when a node of a cluster does not answer. `near`: what nodes on
        this host share."""
        self._view = view
        self._near = near
        self._on_silent = on_silent
        self._inbox: deque[Request] = deque()
        """What was handed over and has no connection yet."""
        self._ticks: list[Tick] = []
        self._at_end: list[Ended] = []
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._sleeping = False
        self._woken = False
        self._stopping = False
        self._leave = ANY_NODE
        self.ended: RinglogError | None = None
        """Why the thread has ended, once it has. `check_runs` raises it."""
        self._lock = threading.Lock()
        """Between `send` and the end of the thread: no request is left in an inbox that nobody empties."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # Of the I/O thread alone:
        self._sockets: Sockets
        self._links: Links

    def __del__(self) -> None:
        # Not at the end of the thread: someone may be about to write to it, and its number is soon given again.
        os.close(self._wake_fd)

    # -- from any thread -------------------------------------------------------------------------------------

    def start(self) -> None:
        _teach_malloc()
        self._thread.start()

    def send(self, request: Request) -> None:
        """Queue a request; it leaves in the order of the calls."""
        request.deadline_s = time.monotonic() + request.timeout_s
        with self._lock:
            ended = self.ended
            if ended is None:
                self._inbox.append(request)
        if ended is not None:
            request.on_error(ended)
        elif self._sleeping:  # else it looks into the inbox before it sleeps
            os.eventfd_write(self._wake_fd, 1)

    def leave_home(self, node: int) -> None:
        """Ask another node than this one what any node can answer."""
        self._leave = node
        self._nudge()

    def add_tick(self, tick: Tick) -> None:
        self._ticks.append(tick)
        self._nudge()

    def add_end(self, ended: Ended) -> None:
        """Call back on the thread when it ends, with the reason."""
        self._at_end.append(ended)

    def wake(self) -> None:
        """Let the thread make a pass. Cheap while it is awake; raises why it ended when it has."""
        if self.ended is not None:
            self.check_runs()
        self._woken = True
        if self._sleeping:
            os.eventfd_write(self._wake_fd, 1)

    def check_runs(self) -> None:
        """Raise why the thread ended, if it has: anew each time, or the one would gather the frames of all."""
        ended = self.ended
        if ended is not None:
            raise type(ended)(str(ended)) from ended

    def _nudge(self) -> None:
        self._woken = True
        if self._sleeping:
            os.eventfd_write(self._wake_fd, 1)

    def on_thread(self) -> bool:
        """Whether the caller is the I/O thread."""
        # The number of a thread that has ended is given to another one.
        return threading.get_ident() == self._thread.ident and self._thread.is_alive()

    def stop(self) -> None:
        """End the thread and wait for it. What is not answered fails with ClientClosed."""
        self._stopping = True
        self._woken = True
        if not self._thread.ident:
            return
        if self._thread.is_alive():
            os.eventfd_write(self._wake_fd, 1)
            if not self.on_thread():
                self._thread.join()

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        end: RinglogError = ClientClosed("the client was closed")
        try:
            self._sockets = Sockets(self._wake_fd)
            self._links = Links(self._sockets, self._view, time.monotonic(), self._on_silent, self._near)
            while not self._stopping:
                self._pass()
        except BaseException as bug:
            end = InvariantBroken(f"the client's I/O thread ended: {bug!r}. Make a new client")
            end.__cause__ = bug
            raise
        finally:
            self._end(end)

    def _end(self, why: RinglogError) -> None:
        """Whatever ended the thread, and whatever else breaks now: everyone who waits is told."""
        with self._lock:
            self.ended = why
        left = self._links.end() if hasattr(self, "_links") else []
        for tell in [*(r.on_error for r in (*left, *self._inbox)), *self._at_end]:
            call_safely(tell, why)
        self._inbox.clear()
        self._ticks.clear()
        self._at_end.clear()
        if hasattr(self, "_sockets"):
            self._sockets.close()

    def _pass(self) -> None:
        now_s = time.monotonic()
        self._woken = False
        links, inbox = self._links, self._inbox
        if links.step(now_s):
            self._woken = True
        if self._leave != ANY_NODE:
            node, self._leave = self._leave, ANY_NODE
            links.leave_home(node, now_s)
        next_s: float | None = None
        for tick in self._ticks:
            at_s = tick(now_s)
            if at_s is not None and (next_s is None or at_s < next_s):
                next_s = at_s
        while inbox:
            links.take(inbox.popleft(), now_s)
        if links.flush(now_s):
            self._woken = True
        at_s = links.next_s()
        if at_s is not None and (next_s is None or at_s < next_s):
            next_s = at_s
        self._sleeping = True
        idle = not self._woken and not self._stopping and not inbox
        wait_s = (None if next_s is None else max(0.0, next_s - time.monotonic())) if idle else 0.0
        woken = self._sockets.wait(wait_s)
        self._sleeping = False
        if woken:
            os.eventfd_read(self._wake_fd)


@functools.cache
def _teach_malloc() -> None:
    """Free one large block: from then on malloc takes blocks of a message's size from memory that it has, as it does in
    any process that once freed as much. Before, each would be mapped, zeroed page by page and unmapped."""
    np.empty(_LARGE_BLOCK_BYTES, dtype=np.uint8)
