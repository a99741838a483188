"""One connection of a client to one node, on its I/O thread: how it comes up, what it carries, what fails with it.

Requests leave only in READY:

    CONNECTING ── handshake ──▶ GREETING ── metadata ──▶ READY
        ▲  │ refused, 1 s: the next endpoint │ same host: CONNECTING to ipc://
        └──┴────────── lost ─────────────────┴──────────────┘

A link that seeks goes on for ever, from endpoint to endpoint: a client has one, and asks it for all that any node can
answer. A link that is meant for one node ENDS when that is not there: whoever sent something looks up who leads now.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from math import inf

from ringlog.client.cluster_view import ClusterView
from ringlog.client.near_memory import BATCH_BYTES_MIN, NearMemory, Shares
from ringlog.client.outage import Outage, words_for
from ringlog.errors import (
    CorruptFrame,
    NodeUnavailable,
    NotLeader,
    RequestTimeout,
    RinglogError,
    StaleMetadata,
    UnsupportedVersion,
)
from ringlog.limits import REPLY_BODY_BYTES_MAX
from ringlog.net.dealer import Change, Sockets
from ringlog.net.framing import HEADER_BYTES, Api, Flag, Header
from ringlog.net.host import host_id
from ringlog.net.messages import (
    ErrorReply,
    MetadataReply,
    MetadataRequest,
    ShareMemoryReply,
    ShareMemoryRequest,
    decode_body,
    encode_body,
)
from ringlog.net.session import ANY_NODE, Request, Session
from ringlog.net.wire_errors import raised

_CONNECT_S = 1.0
"""How long an endpoint has to answer before the next one is tried."""
_NEARER_S = 5.0
"""The same for the ipc:// of a node that has just answered. Where nobody listens that is known at once; and a node that
is slow on a busy machine must not have its neighbours come by tcp://, where it cannot see them die."""
_REFUSED_S = 0.05
"""How long to wait before the next endpoint is tried after one that nobody listens at."""
_GREETING_S = 5.0
_IPC_AGAIN_S = 30.0
_RECEIVE_FRAMES_MAX = 256
"""Frames taken in one pass, so that a flood of replies does not keep requests from leaving."""
_ERROR = int(Flag.ERROR)
_REPEATABLE = (Api.METADATA, Api.INIT_PRODUCER)


class LinkState(Enum):
    CONNECTING = "connecting"
    GREETING = "greeting"
    READY = "ready"
    ENDED = "ended"


class Link:
    """One connection. Everything happens on the thread that made it."""

    def __init__(
        self,
        sockets: Sockets,
        view: ClusterView,
        endpoints: list[str],
        now_s: float,
        node: int = ANY_NODE,
        near: Shares | None = None,
    ) -> None:
        """`node`: the one that must answer; ANY_NODE for a link that seeks one. `near`: what it shares with a node on
        this host."""
        self._shares = near
        self._near: NearMemory | None = None
        self.node = node
        """The node at the other end, once it is known; ANY_NODE also for one without a cluster."""
        self.seeks = node == ANY_NODE
        self.outbox: deque[Request] = deque()
        self.suspected = False
        """It owes an answer for too long."""
        self.shunned_until_s = 0.0
        """Until then it is nobody's home: its node is silent, or lags behind."""
        self.is_double = False
        """Another connection to its node is used from now on."""
        self.state = LinkState.CONNECTING
        self._sockets = sockets
        self._view = view
        self._endpoints = endpoints
        self._at = 0
        self._since_s = now_s
        self._next_endpoint_s: float | None = None
        self._session = Session()
        self.heard_s = now_s
        """When something came last."""
        self._late_s = 0.0
        """Nothing that it carries is late before this time, as the last `next_s` found."""
        self._ipc_not_before_s: dict[str, float] = {}
        self._ever_up = False
        self._outage = Outage(now_s)
        self._why_down = ""
        self._dealer = sockets.dealer(endpoints[0])

    @property
    def ready(self) -> bool:
        return self.state is LinkState.READY

    @property
    def is_empty(self) -> bool:
        """It carries nothing."""
        return not self.outbox and not self._session.pending

    @property
    def endpoint(self) -> str:
        return self._dealer.endpoint

    # -- requests and replies --------------------------------------------------------------------------------

    def step(self, now_s: float) -> bool:
        """Take what came, fail what is late, go on to another endpoint if it is time to. True: there may be more.
        `next_s` is to be asked before each step but the first."""
        more = False
        if self._sockets.ready or self.state is not LinkState.READY:
            dealer = self._dealer
            for change in dealer.changes():
                if self._dealer is dealer and self.state is not LinkState.ENDED:
                    self._changed(change, now_s)
            if self.state is LinkState.ENDED:
                return False
            more = self._dealer.has_frames and self._receive(now_s)
        if now_s >= self._late_s:
            self._expire(now_s)
        if self.state is not LinkState.READY:
            if self.outbox and self.seeks:
                self._outage.tell(now_s, self._words())
            self._try_another(now_s)
        return more

    def flush(self, now_s: float) -> None:
        """Send what may leave."""
        if self.state is not LinkState.READY:
            return
        outbox, session = self.outbox, self._session
        if self._near is not None and self._near.retired:
            self._share_again(now_s)
        while outbox and session.has_room(outbox[0]):
            request = outbox[0]
            if session.shares_memory:
                self._bring_near(request)
            frame = session.start(request, now_s)
            if not self._dealer.send(frame):
                request.landing = None
                break
            outbox.popleft()
            session.sent(request)

    def recall(self, moved: Callable[[Request], bool]) -> None:
        """Fail requests, sent or not, whose partition another node leads by now: this one may never answer."""
        unsent = [request for request in self.outbox if moved(request)]
        for request in unsent:
            self.outbox.remove(request)
        for request in (*self._session.recall(moved), *unsent):
            request.on_error(
                NotLeader(f"node {self.node} leads the partition no longer. Retry with the new leader")
            )

    def silent_since_s(self) -> float | None:
        """Since when the node owes an answer and has said nothing at all; None: it owes none, or is not there yet."""
        due_s = self._session.answer_due_s() if self.ready else None
        return None if due_s is None else max(due_s, self.heard_s)

    def recall_repeatable(self) -> None:
        """Fail what another node can answer as well, and what asking twice does no harm to."""
        for request in self._session.recall(_answered_elsewhere):
            request.on_error(NodeUnavailable(f"{self.endpoint} is silent. Ask another node"))

    def _receive(self, now_s: float) -> bool:
        self.heard_s = now_s
        session = self._session
        for _ in range(_RECEIVE_FRAMES_MAX):
            frame = self._dealer.receive()
            if frame is None:
                return False
            try:
                match = session.match(frame)
            except (CorruptFrame, UnsupportedVersion) as wrong:
                self._lose(now_s, f"{self.endpoint} does not speak this protocol: {wrong}")
                if self.state is LinkState.CONNECTING:
                    self._connect(now_s, self.endpoint)
                return False
            if match is not None:
                request, header, body = match
                if header.flags & _ERROR:
                    request.on_error(_error_in(body))
                else:
                    try:
                        request.on_reply(header, body)
                    except CorruptFrame as unreadable:
                        request.on_error(unreadable)
            if not session.pending:
                return False  # what comes now answers nothing: the next wait tells of it
        return True

    def _expire(self, now_s: float) -> None:
        due_s = self._session.next_deadline_s()
        if due_s is not None and due_s <= now_s:
            for request in self._session.expired(now_s):
                request.on_error(
                    RequestTimeout(f"no answer from {self.endpoint} within {request.timeout_s:.3g} s")
                )
        if self.outbox:
            for request in [one for one in self.outbox if one.deadline_s <= now_s]:
                self.outbox.remove(request)
                request.on_error(self._unsent())

    def _unsent(self) -> RinglogError:
        if self.ready:
            return RequestTimeout("the node was too busy to be sent the request in time")
        return NodeUnavailable(self._words())

    def _words(self) -> str:
        """What is so while no node answers, and what to do."""
        if self._why_down:
            return self._why_down
        named = self._view.named if self.seeks else self._endpoints
        is_taken = self._dealer.is_taken or self.state is LinkState.GREETING
        return words_for(named, is_taken=is_taken, was_up=self._ever_up)

    # -- the connection --------------------------------------------------------------------------------------

    def next_s(self) -> float | None:
        """When to look again though nothing comes."""
        answer_s = self._session.next_deadline_s()
        self._late_s = inf if answer_s is None else answer_s
        if self.state is LinkState.READY and not self.outbox:
            return answer_s
        self._late_s = min([self._late_s, *(request.deadline_s for request in self.outbox)])
        told_s = self._outage.due_s if self.outbox and self.seeks and not self.ready else None
        soonest_s = min([self._late_s, *(at for at in (self._patience_end_s(), told_s) if at is not None)])
        return None if soonest_s == inf else soonest_s

    def end(self, why: RinglogError) -> None:
        """Close it, and fail all that it carries."""
        self._enter(LinkState.ENDED, time.monotonic())
        self._dealer.close()
        for request in self.abandon():
            request.on_error(why)

    def abandon(self) -> list[Request]:
        """All that it carries, taken from it."""
        left = [*self._session.lost(), *self.outbox]
        self.outbox.clear()
        return left

    def close(self) -> None:
        """Close the socket of a link that carries nothing."""
        if self.state is not LinkState.ENDED:
            self.state = LinkState.ENDED
            self._dealer.close()

    def _patience_end_s(self) -> float | None:
        """When another endpoint is tried; None: ZeroMQ tries this one again by itself, or it works."""
        if self.state is LinkState.CONNECTING:
            alone = self.seeks and self._view.seeds() == [self.endpoint]
            if alone:
                return None
            patient_s = self._since_s + (_CONNECT_S if self.endpoint in self._endpoints else _NEARER_S)
            return patient_s if self._next_endpoint_s is None else min(patient_s, self._next_endpoint_s)
        return self._since_s + _GREETING_S if self.state is LinkState.GREETING else None

    def _try_another(self, now_s: float) -> None:
        due_s = self._patience_end_s()
        if due_s is None or now_s < due_s:
            return
        if self.endpoint.startswith("ipc://"):
            self._ipc_not_before_s[self.endpoint] = now_s + _IPC_AGAIN_S
        self._fail_pending()
        self._at += 1
        if self._at >= len(self._endpoints):
            if not self.seeks:
                self.end(self._unreachable())
                return
            self._endpoints, self._at = self._view.seeds(), 0
        self._connect(now_s, self._endpoints[self._at])

    def _connect(self, now_s: float, endpoint: str) -> None:
        self._dealer.close()
        self._dealer = self._sockets.dealer(endpoint)
        self._enter(LinkState.CONNECTING, now_s)

    def _enter(self, state: LinkState, now_s: float) -> None:
        self.state, self._since_s, self._next_endpoint_s = state, now_s, None

    def _changed(self, change: Change, now_s: float) -> None:
        if change is Change.REFUSED:
            if self.state is LinkState.CONNECTING and self._next_endpoint_s is None:
                # Seekers wait a moment, or they would go round without a pause; who was sent here is told at once.
                self._next_endpoint_s = now_s + (_REFUSED_S if self.seeks else 0.0)
            return
        if change is Change.DOWN or self.state is not LinkState.CONNECTING:
            self._lose(now_s, "")
        if change is Change.UP and self.state is LinkState.CONNECTING:
            self._enter(LinkState.GREETING, now_s)
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
        self._why_down = self._why_not(reply)
        if self._why_down:
            self._next_endpoint_s = now_s
            self.state = LinkState.CONNECTING
            return
        with suppress(StaleMetadata):  # it lags behind: whoever needs newer metadata finds out
            self._view.learn(reply)
        nearer = self._nearer_endpoint(reply, now_s)
        if nearer is not None:
            self._session.lost()
            self._connect(now_s, nearer)
            return
        self._ever_up = True
        self.node = reply.node_id if reply.brokers else ANY_NODE
        self._enter(LinkState.READY, now_s)
        self._outage.end(self.endpoint)
        near = self._shares() if self._shares is not None and self.endpoint.startswith("ipc://") else None
        if near is not None:
            self._share_memory(near, now_s)

    def _share_memory(self, near: NearMemory, now_s: float) -> None:
        """Ask the node to read batches where they lie, and to write replies where they are read. One that cannot says
        so, and they take the socket."""
        self._near, self._session.shares_memory = near, False

        def shared(header: Header, body: memoryview) -> None:
            reply = decode_body(body, ShareMemoryReply)
            self._session.shares_memory = self._near is near and reply.writable == near.writable

        body = encode_body(ShareMemoryRequest(near.descriptor, near.nbytes, near.writable))
        ask = Request(Api.SHARE_MEMORY, body, shared, timeout_s=_GREETING_S)
        ask.deadline_s = now_s + _GREETING_S
        if self._dealer.send(self._session.start(ask, now_s)):
            self._session.sent(ask)

    def _share_again(self, now_s: float) -> None:
        """The process has forked: what was shared is not used any more. While it forks there is nothing else."""
        near = self._shares() if self._shares is not None else None
        if near is not None:
            self._share_memory(near, now_s)

    def _bring_near(self, request: Request) -> None:
        """Give a fetch a place for its reply. Copy a large batch that was made elsewhere to where the node reads it: to
        send it would cost more."""
        near = self._near
        if near is None:
            return
        if near.writable:
            request.landing = near.take(request.landing_bytes) if request.landing_bytes else None
            return
        nbytes = len(request.body)
        if not request.headroom or request.near_at >= 0 or nbytes < BATCH_BYTES_MIN:
            return
        place = near.take()
        if place is not None and nbytes <= len(place.memory):
            place.memory[:nbytes] = request.body
            request.body, request.near_at = place.memory[:nbytes], place.position + HEADER_BYTES

    def _why_not(self, reply: MetadataReply) -> str:
        """Why the node that answers is not the one that is meant."""
        ours = self._view.cluster_id
        if ours not in ("", reply.cluster_id):
            return f"{self.endpoint} belongs to cluster {reply.cluster_id}, not {ours}. Make a new client"
        if not self.seeks and reply.node_id != self.node:
            return f"{self.endpoint} is node {reply.node_id} now, not {self.node}"
        return ""

    def _not_greeted(self, error: RinglogError) -> None:
        self._why_down = f"{self.endpoint} did not answer a first question: {error}"

    def _nearer_endpoint(self, reply: MetadataReply, now_s: float) -> str | None:
        if self.endpoint.startswith("ipc://") or reply.host_id != host_id():
            return None
        near = [
            endpoint
            for endpoint in reply.endpoints
            if endpoint.startswith("ipc://") and self._ipc_not_before_s.get(endpoint, 0.0) <= now_s
        ]
        return random.choice(near) if near else None  # a node with several network processes has one for each

    def _lose(self, now_s: float, why: str) -> None:
        """Fail what was sent: whether it was done is not known, and no answer can come any more."""
        self._why_down = why or self._why_down
        if not self.seeks:
            self.end(self._unreachable())
            return
        left, self.node = self.node, ANY_NODE
        if self.ready:
            self._outage.begin(now_s)
        self._enter(LinkState.CONNECTING, now_s)
        self._fail_pending()
        if left != ANY_NODE or self.endpoint.startswith("ipc://"):
            # Another node will do; and a node that comes back may listen at another ipc:// endpoint.
            self._endpoints, self._at = self._view.seeds(but=left), 0
            self._connect(now_s, self._endpoints[0])

    def _fail_pending(self) -> None:
        """Fail what was sent, and, of one that seeks, what waits for the node that was here."""
        lost = NodeUnavailable(f"the connection to {self.endpoint} was lost before the answer came")
        bound = [request for request in self.outbox if self.seeks and request.node != ANY_NODE]
        for request in bound:
            self.outbox.remove(request)
        for request in (*self._session.lost(), *bound):
            request.on_error(lost)

    def _unreachable(self) -> NodeUnavailable:
        why = f": {self._why_down}" if self._why_down else ""
        return NodeUnavailable(f"node {self.node} does not answer at {', '.join(self._endpoints)}{why}")


def _answered_elsewhere(request: Request) -> bool:
    return not request.to_leader or (request.api in _REPEATABLE and request.node == ANY_NODE)


def _error_in(body: memoryview) -> RinglogError:
    try:
        return raised(decode_body(body, ErrorReply))
    except CorruptFrame as wrong:
        return wrong
