"""Stands between a fetcher and its connection: the lock, the wait of the poller, the way of requests.

The connection's thread and the requests under way hold it weakly: a consumer that nobody holds can go.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TypeVar

from ringlog.client.assigned import Assigned
from ringlog.client.connection import Connection
from ringlog.client.fetcher import Fetcher
from ringlog.client.lookups import Ask
from ringlog.errors import ClientClosed, RequestTimeout, RinglogError, StaleMetadata
from ringlog.limits import REPLY_BODY_BYTES_MAX
from ringlog.model import TopicPartition
from ringlog.net.framing import Header
from ringlog.net.messages import MetadataReply, decode_body
from ringlog.net.session import Request

T = TypeVar("T")

_TELL_ROOM_S = 0.002
"""While there is plenty, the connection's thread is told of room in the buffers this often: a pass for each chunk would
take a quarter of what it costs to decode it, and ask for one partition at a time."""

_live: weakref.WeakSet[FetchDriver] = weakref.WeakSet()
_frozen: list[FetchDriver] = []
"""Whose locks the thread that forks holds, so that the child finds no fetcher half changed."""


class FetchDriver:
    """Runs a fetcher. The lock is never held while the connection is called: that has locks of its own."""

    def __init__(self, connection: Connection, fetcher: Fetcher) -> None:
        self._connection = connection
        self._fetcher = fetcher
        self._renew_lock()
        self._interrupted = False
        self._room_untold = False
        """The poller made room, and the connection's thread does not know."""
        self._told_s = 0.0
        self._rack = fetcher.settings.client_rack
        self._here = weakref.ref(self)
        connection.on_tick(self.tick)
        connection.on_end(self._io_ended)
        _live.add(self)

    def _renew_lock(self) -> None:
        # Entered by itself where nobody waits: a condition's own way to it costs two calls more.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    # -- the poller's side -------------------------------------------------------------------------------------

    def look(self, at: Callable[[Fetcher], T]) -> T:
        """Read something of the fetcher."""
        with self._lock:
            return at(self._fetcher)

    def change(self, how: Callable[[Fetcher], T]) -> T:
        """Change the fetcher, and let what follows from it be asked for."""
        with self._lock:
            result = how(self._fetcher)
        self._connection.wake()
        return result

    def reads_something(self) -> bool:
        """Whether any partition is assigned."""
        return bool(self._fetcher.assigned)

    def check_open(self) -> None:
        """Raise why nothing will come any more, if that is so."""
        if self._connection.closed:
            raise ClientClosed("the consumer was closed. Make a new one")
        self._connection.check_runs()

    def interrupt(self) -> None:
        """Let the poller return from its wait, now or the next time that it would wait: it has something else to do."""
        with self._lock:
            self._interrupted = True
            self._changed.notify_all()

    def head(self, deadline_s: float) -> tuple[Assigned, int] | None:
        """The partition whose turn it is and the poller's position in it; waits until there is one, time is over or
        somebody interrupts. Raises what is wrong with a partition when it is told of, and when time is over."""
        try:
            while True:
                with self._lock:
                    self.check_open()
                    now_s = time.monotonic()
                    assigned = self._fetcher.head(now_s)
                    if assigned is not None:
                        return assigned, assigned.position
                    if self._interrupted:
                        self._interrupted = False
                        return None
                    if now_s >= deadline_s:
                        self._fetcher.raise_standing()
                        return None
                    if not self._room_untold:
                        self._changed.wait(deadline_s - now_s)
                        continue
                self._tell_room(now_s)
        except RinglogError:
            self._connection.wake()  # what was told is asked again, and nothing else may stir its thread
            raise

    def next_head(self) -> tuple[Assigned, int] | None:
        """As `head`, for a poller that has records in its hands: waits for nothing, raises nothing."""
        with self._lock:
            assigned = self._fetcher.head(0.0, may_raise=False)  # the time is for what is raised
            return None if assigned is None else (assigned, assigned.position)

    def advance(self, assigned: Assigned, position: int) -> None:
        """The poller took what lies below a position."""
        with self._lock:
            self._room_untold |= self._fetcher.advance(assigned, position)
            hungry = self._room_untold and self._fetcher.hungry
        if self._room_untold:
            now_s = time.monotonic()
            if hungry or now_s >= self._told_s + _TELL_ROOM_S:
                self._tell_room(now_s)

    def _tell_room(self, now_s: float) -> None:
        self._room_untold, self._told_s = False, now_s
        self._connection.wake()

    def settle(self, tps: Iterable[TopicPartition], timeout_s: float) -> None:
        """Wait until these have positions."""
        deadline_s = time.monotonic() + timeout_s
        some = list(tps)
        self._connection.wake()
        with self._lock:
            while self._fetcher.unsettled(some):
                self.check_open()
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    names = ", ".join(str(tp) for tp in some[:5])
                    raise RequestTimeout(f"no position was found for {names} within {timeout_s:.3g} s. Retry")
                self._changed.wait(left_s)

    # -- the connection's side ---------------------------------------------------------------------------------

    def tick(self, now_s: float) -> float | None:
        """Send what is due. Called on the connection's thread, on each of its passes."""
        with self._lock:
            if self._rack:
                self._fetcher.near_nodes = self._connection.nodes_in(self._rack)
            asks, next_s = self._fetcher.due(now_s)
        for ask in asks:
            if ask.topic is not None:
                self._connection.forget(ask.topic)
            self._send(ask)
        return next_s

    def _send(self, ask: Ask) -> None:
        here = self._here

        def on_reply(header: Header, body: memoryview) -> None:
            driver = here()
            if driver is not None:
                if ask.topic is not None:
                    try:
                        driver._connection.learn_all(
                            decode_body(body, MetadataReply, bytes_max=REPLY_BODY_BYTES_MAX)
                        )
                    except StaleMetadata as lags:
                        on_error(lags)
                        return
                with driver._lock:
                    ask.answered(body, time.monotonic())
                    driver._changed.notify_all()

        def on_error(error: RinglogError) -> None:
            driver = here()
            if driver is not None:
                with driver._lock:
                    ask.failed(error, time.monotonic())
                    driver._changed.notify_all()

        self._connection.send(
            Request(
                ask.api,
                ask.body,
                on_reply,
                on_error,
                ask.partition,
                timeout_s=ask.timeout_s,
                waits_s=ask.waits_s,
                node=ask.node,
                to_leader=ask.to_leader,
                landing_bytes=ask.landing_bytes,
            )
        )

    def _io_ended(self, why: RinglogError) -> None:
        """The poller finds out by itself, once it looks."""
        with self._lock:
            self._changed.notify_all()

    # -- forks -------------------------------------------------------------------------------------------------

    def _freeze(self) -> None:
        self._lock.acquire()

    def _thaw(self) -> None:
        self._lock.release()

    def _begin_in_child(self) -> None:
        self._renew_lock()
        self._fetcher.forget_flights()
        self._room_untold = True  # nothing is under way, and there is no thread yet that would ask for it


def _before_fork() -> None:
    for driver in list(_live):
        driver._freeze()
        _frozen.append(driver)


def _in_parent() -> None:
    while _frozen:
        _frozen.pop()._thaw()


def _in_child() -> None:
    while _frozen:
        _frozen.pop()._begin_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
