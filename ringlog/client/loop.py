"""The I/O thread of a client: it alone touches the socket; others hand it requests and wake it.

It knows nothing of clients: it holds no reference to one, so that a client that nobody holds can go. A connection
goes through these states, and requests leave only in READY:

    CONNECTING ── handshake ──▶ GREETING ── metadata ──▶ READY
        ▲  │ 1 s: the next endpoint          │ same host: CONNECTING to ipc://
        └──┴────────── lost ─────────────────┴──────────────┘
"""

from __future__ import annotations

import functools
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

import numpy as np

from ringlog.client.futures import call_safely
from ringlog.errors import (
    ClientClosed,
    CorruptFrame,
    InvariantBroken,
    NodeUnavailable,
    RequestTimeout,
    RinglogError,
    UnsupportedVersion,
)
from ringlog.limits import MIB, REPLY_BODY_BYTES_MAX
from ringlog.net.dealer import Change, Dealer, Sockets
from ringlog.net.framing import Api, Flag, Header
from ringlog.net.host import host_id
from ringlog.net.messages import ErrorReply, MetadataReply, MetadataRequest, decode_body, encode_body
from ringlog.net.session import Request, Session
from ringlog.net.wire_errors import raised

Tick = Callable[[float], float | None]
Ended = Callable[[RinglogError], None]

_CONNECT_S = 1.0
"""How long an endpoint has to answer before the next one is tried, or ipc:// is given up for tcp://."""
_GREETING_S = 5.0
_IPC_AGAIN_S = 30.0
_RECEIVE_FRAMES_MAX = 256
"""Frames taken in one pass, so that a flood of replies does not keep requests from leaving."""


_LARGE_BLOCK_BYTES = 31 * MIB
"""Just below the largest block that malloc learns from."""


class _State(Enum):
    CONNECTING = "connecting"
    GREETING = "greeting"
    READY = "ready"


class Loop:
    """One thread with one connection. `start` it once; a loop that was stopped is not started again."""

    def __init__(self, endpoints: list[str], name: str) -> None:
        self._endpoints = endpoints
        self._outbox: deque[Request] = deque()
        self._ticks: list[Tick] = []
        self._at_end: list[Ended] = []
        self._session = Session()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._sleeping = False
        self._woken = False
        self._stopping = False
        self._ended: RinglogError | None = None
        self._lock = threading.Lock()
        """Between `send` and the end of the thread: no request is left in an outbox that nobody empties."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # Of the I/O thread alone:
        self._sockets: Sockets
        self._dealer: Dealer
        self._state = _State.CONNECTING
        self._state_since_s = 0.0
        self._endpoint_at = 0
        self._ipc_not_before_s: dict[str, float] = {}
        self._ever_up = False
        self._why_down = ""

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
            if self._ended is None:
                self._outbox.append(request)
        if self._ended is not None:
            request.on_error(self._ended)
            return
        if not self.on_thread():  # which sends what it queued before it sleeps
            self._nudge()

    def add_tick(self, tick: Tick) -> None:
        self._ticks.append(tick)
        self._nudge()

    def add_end(self, ended: Ended) -> None:
        """Call back on the thread when it ends, with the reason."""
        self._at_end.append(ended)

    def wake(self) -> None:
        """Let the thread make a pass. Cheap while it is awake; raises why it ended when it has."""
        self.check_runs()
        self._nudge()

    def check_runs(self) -> None:
        """Raise why the thread ended, if it has: anew each time, or the one would gather the frames of all."""
        ended = self._ended
        if ended is not None:
            raise type(ended)(str(ended)) from ended

    def _nudge(self) -> None:
        self._woken = True
        if self._sleeping:
            os.eventfd_write(self._wake_fd, 1)

    def on_thread(self) -> bool:
        """Whether the caller is the I/O thread."""
        return threading.get_ident() == self._thread.ident

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
            self._connect(time.monotonic(), self._endpoints[0])
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
            self._ended = why
        for tell in [*(r.on_error for r in (*self._session.lost(), *self._outbox)), *self._at_end]:
            call_safely(tell, why)
        self._outbox.clear()
        self._ticks.clear()
        self._at_end.clear()
        if hasattr(self, "_dealer"):
            self._dealer.close()
        if hasattr(self, "_sockets"):
            self._sockets.close()

    def _pass(self) -> None:
        now_s = time.monotonic()
        self._woken = False
        for change in self._dealer.changes():
            self._changed(change, now_s)
        if self._dealer.has_frames:
            self._receive(now_s)
        due_s = self._session.next_deadline_s()
        if self._outbox or (due_s is not None and due_s <= now_s):
            self._expire(now_s)
        next_s = self._next_tick_s(now_s)
        if self._outbox:
            self._flush(now_s)
        due_s = self._session.next_deadline_s()
        if due_s is not None and (next_s is None or due_s < next_s):
            next_s = due_s
        if self._outbox or self._state is not _State.READY:
            due_s = self._connection_timer_s(now_s)
            if due_s is not None and (next_s is None or due_s < next_s):
                next_s = due_s
        self._sleeping = True
        idle = not self._woken and not self._stopping
        wait_s = (None if next_s is None else max(0.0, next_s - time.monotonic())) if idle else 0.0
        woken = self._sockets.wait(wait_s)
        self._sleeping = False
        if woken:
            os.eventfd_read(self._wake_fd)

    def _next_tick_s(self, now_s: float) -> float | None:
        soonest: float | None = None
        for tick in list(self._ticks):
            at_s = tick(now_s)
            if at_s is not None and (soonest is None or at_s < soonest):
                soonest = at_s
        return soonest

    # -- requests and replies --------------------------------------------------------------------------------

    def _flush(self, now_s: float) -> None:
        if self._state is not _State.READY:
            return
        while self._outbox and self._session.has_room(self._outbox[0]):
            request = self._outbox[0]
            frame = self._session.start(request, now_s)
            if not self._dealer.send(frame):
                return
            self._outbox.popleft()
            self._session.sent(request)
            if not request.expects_reply:
                nothing = Header(
                    1, request.api, request.flags, request.partition, request.correlation, 0, 0, 0
                )
                request.on_reply(nothing, memoryview(b""))

    def _receive(self, now_s: float) -> None:
        for _ in range(_RECEIVE_FRAMES_MAX):
            frame = self._dealer.receive()
            if frame is None:
                return
            try:
                match = self._session.match(frame)
            except (CorruptFrame, UnsupportedVersion) as wrong:
                self._lose(now_s, f"{self._dealer.endpoint} does not speak this protocol: {wrong}")
                self._connect(now_s, self._dealer.endpoint)
                return
            if match is None:
                continue
            if match.header.flags & Flag.ERROR:
                match.request.on_error(_error_in(match.body))
                continue
            try:
                match.request.on_reply(match.header, match.body)
            except CorruptFrame as unreadable:
                match.request.on_error(unreadable)
        self._woken = True

    def _expire(self, now_s: float) -> None:
        for request in self._session.expired(now_s):
            request.on_error(
                RequestTimeout(f"no answer from {self._dealer.endpoint} within {request.timeout_s:.3g} s")
            )
        for request in self._waiting():
            if request.deadline_s <= now_s:
                self._outbox.remove(request)
                request.on_error(self._unsent())

    def _waiting(self) -> list[Request]:
        """What is in the outbox now: others may put more there while it is looked at."""
        if not self._outbox:
            return []
        with self._lock:
            return list(self._outbox)

    def _unsent(self) -> RinglogError:
        if self._state is _State.READY:
            return RequestTimeout("the node was too busy to be sent the request in time")
        where = ", ".join(self._endpoints)
        if self._ever_up or self._why_down:
            return NodeUnavailable(
                self._why_down or f"the connection to {where} was lost and did not come back"
            )
        return NodeUnavailable(
            f"no node answers at {where}. Start one with `ringlog start`, or check --bootstrap"
        )

    # -- the connection --------------------------------------------------------------------------------------

    def _connect(self, now_s: float, endpoint: str) -> None:
        if hasattr(self, "_dealer"):
            self._dealer.close()
        self._dealer = self._sockets.dealer(endpoint)
        self._enter(_State.CONNECTING, now_s)

    def _enter(self, state: _State, now_s: float) -> None:
        self._state, self._state_since_s = state, now_s

    def _changed(self, change: Change, now_s: float) -> None:
        if change is Change.DOWN:
            self._lose(now_s, "")
            return
        if self._state is not _State.CONNECTING:
            self._lose(now_s, "")
        self._enter(_State.GREETING, now_s)
        self._greet(now_s)

    def _greet(self, now_s: float) -> None:
        """Ask for the node's endpoints before anything else is sent, so that a move to ipc:// loses nothing."""
        body = encode_body(MetadataRequest(topics=[]))
        hello = Request(Api.METADATA, body, self._greeted, self._not_greeted, timeout_s=_GREETING_S)
        hello.deadline_s = now_s + _GREETING_S
        if self._dealer.send(self._session.start(hello, now_s)):
            self._session.sent(hello)
        else:
            self._lose(now_s, "")

    def _greeted(self, header: Header, body: memoryview) -> None:
        now_s = time.monotonic()
        reply = decode_body(body, MetadataReply, bytes_max=REPLY_BODY_BYTES_MAX)
        self._why_down = ""
        nearer = self._nearer_endpoint(reply, now_s)
        if nearer is not None:
            self._session.lost()
            self._connect(now_s, nearer)
            return
        self._ever_up = True
        self._enter(_State.READY, now_s)

    def _not_greeted(self, error: RinglogError) -> None:
        self._why_down = f"{self._dealer.endpoint} did not answer a first question: {error}"

    def _nearer_endpoint(self, reply: MetadataReply, now_s: float) -> str | None:
        if self._dealer.endpoint.startswith("ipc://") or reply.host_id != host_id():
            return None
        near = [
            endpoint
            for endpoint in reply.endpoints
            if endpoint.startswith("ipc://") and self._ipc_not_before_s.get(endpoint, 0.0) <= now_s
        ]
        return random.choice(near) if near else None  # a node with several network processes has one for each

    def _lose(self, now_s: float, why: str) -> None:
        """Fail what was sent: whether it was done is not known, and no answer can come any more."""
        self._enter(_State.CONNECTING, now_s)
        self._why_down = why or self._why_down
        for request in self._session.lost():
            request.on_error(
                NodeUnavailable(f"the connection to {self._dealer.endpoint} was lost before the answer came")
            )

    def _connection_timer_s(self, now_s: float) -> float | None:
        """Try the next endpoint when this one does not answer; say when to look again."""
        earliest = min((request.deadline_s for request in self._waiting()), default=None)
        if self._state is _State.READY:
            return earliest
        patience_s = _CONNECT_S if self._state is _State.CONNECTING else _GREETING_S
        endpoint = self._dealer.endpoint
        alone = self._endpoints == [endpoint] and self._state is _State.CONNECTING
        if alone:
            return earliest  # ZeroMQ tries again by itself
        due_s = self._state_since_s + patience_s
        if now_s >= due_s:
            if endpoint not in self._endpoints:
                self._ipc_not_before_s[endpoint] = now_s + _IPC_AGAIN_S
            else:
                self._endpoint_at += 1
            self._lose(now_s, "")
            self._connect(now_s, self._endpoints[self._endpoint_at % len(self._endpoints)])
            due_s = now_s + patience_s
        return due_s if earliest is None else min(due_s, earliest)


@functools.cache
def _teach_malloc() -> None:
    """Free one large block: from then on malloc takes blocks of a message's size from memory that it has, as it does in
    any process that once freed as much. Before, each would be mapped, zeroed page by page and unmapped."""
    np.empty(_LARGE_BLOCK_BYTES, dtype=np.uint8)


def _error_in(body: memoryview) -> RinglogError:
    try:
        return raised(decode_body(body, ErrorReply))
    except CorruptFrame as wrong:
        return wrong
