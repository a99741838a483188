"""A client's way to its node or cluster: requests from any thread, answers on one I/O thread. Safe across fork."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, TypeVar

import msgspec

from ringlog.client.cluster_view import ClusterView
from ringlog.client.loop import Ended, Loop, Tick
from ringlog.client.metadata import LOOK_AGAIN, TopicCache, check_whole, topic_error
from ringlog.client.near_memory import Shares
from ringlog.client.settings import ClientSettings, check_types, endpoints_of
from ringlog.client.waits import checked_s
from ringlog.errors import (
    ClientClosed,
    CorruptFrame,
    InvalidRequest,
    RequestTimeout,
    RinglogError,
    StaleMetadata,
    UnknownTopic,
)
from ringlog.limits import REPLY_BODY_BYTES_MAX
from ringlog.net.framing import Api, Header
from ringlog.net.messages import (
    Body,
    MetadataReply,
    MetadataRequest,
    TopicMetadata,
    TopicReply,
    decode_body,
    encode_body,
)
from ringlog.net.session import ANY_NODE, Request

R = TypeVar("R", bound=Body)

_HEARD_LATER_S = (0.05, 0.1, 0.2)
"""Pauses before a cluster is asked again for a topic that a node does not know."""

_live: weakref.WeakSet[Connection] = weakref.WeakSet()
_of_the_parent: list[Loop] = []
"""Loops that were copied by a fork: their sockets belong to the parent and are never touched, nor freed."""


class Connection:
    """All connections of a client, and the thread that serves them, started with the first request.

    A request goes to the node that it names, else to the one that leads its partition, else to any.

    Callbacks run on the I/O thread and must not block. The connection holds no strong reference to the object
    whose method `on_tick` or `on_fork` was given: a client that nobody holds is collected, and its thread ends. A
    callback of a request is held until it is called: let a long poll's callback hold its client weakly.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        named = endpoints_of(settings.bootstrap)
        self._endpoints = random.sample(named, len(named))
        """In an order of this client's own: of many clients that name the same addresses, each gets its share."""
        self._ticks: list[Tick] = []
        self._at_end: list[Callable[[], Ended | None]] = []
        self._fork_handlers: list[Callable[[], Callable[[], None] | None]] = []
        self.closed = False
        """Whether `close` was called."""
        self._near: Shares | None = None
        self._begin()
        _live.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._loop: Loop | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._topics = TopicCache(self.settings.metadata_max_age_ms / 1000)
        self._view = ClusterView(self._endpoints)

    # -- requests --------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Send a request from any thread. Exactly one of its two callbacks is called, once, on the I/O thread;
        only when the client is closed already, on the caller's."""
        if self.closed:
            request.on_error(ClientClosed("the client was closed"))
            return
        (self._loop or self._started()).send(request)

    def call(
        self,
        api: Api,
        body: msgspec.Struct,
        reply_type: type[R],
        *,
        partition: int = 0,
        topic: str = "",
        timeout_s: float | None = None,
        on_retry: Callable[[RinglogError], None] | None = None,
        accept: Callable[[R], None] | None = None,
    ) -> R:
        """Ask and wait for the answer. Errors that a retry can help are retried until the time is over, also those that
        `accept` finds in the answer; with `topic`, that of the partition, its leader is looked up before."""
        self.check_may_wait()
        patience_s = self.settings.request_timeout_ms / 1000 if timeout_s is None else checked_s(timeout_s)
        deadline_s = time.monotonic() + patience_s
        backoff_s = self.settings.retry_backoff_ms / 1000
        check_types(type(body), msgspec.structs.asdict(body))
        try:
            data = encode_body(body)
        except (OverflowError, UnicodeEncodeError) as wrong:
            raise InvalidRequest(f"what is asked for cannot be sent to a node: {wrong}") from None
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                reply = decode_body(
                    self.ask(api, data, partition, max(left_s, 0.001)),
                    reply_type,
                    bytes_max=REPLY_BODY_BYTES_MAX,
                )
                if accept is not None:
                    accept(reply)
                return reply
            except RinglogError as error:
                pause_s = backoff_s * random.uniform(0.8, 1.2)
                if not error.retriable or time.monotonic() + pause_s >= deadline_s:
                    raise
                if on_retry is not None:
                    on_retry(error)
                if topic and isinstance(error, LOOK_AGAIN):
                    self.look_again(topic)
            time.sleep(pause_s)
            backoff_s = min(backoff_s * 2, self.settings.retry_backoff_max_ms / 1000)

    def ask(
        self, api: Api, data: bytes, partition: int, timeout_s: float, *, node: int = ANY_NODE
    ) -> memoryview:
        """The body of the answer to one request; nothing is retried. `node`: who is asked, also if it does not lead."""
        done = threading.Event()
        answer: list[memoryview | RinglogError] = []

        def on_reply(header: Header, body: memoryview) -> None:
            answer.append(body)
            done.set()

        def on_error(error: RinglogError) -> None:
            answer.append(error)
            done.set()

        request = Request(api, data, on_reply, on_error, partition, timeout_s=timeout_s, node=node)
        request.to_leader = node == ANY_NODE
        self.send(request)
        # The loop answers every request in time; the spare second is for a machine that stands still.
        if not done.wait(timeout_s + 1.0):
            raise RequestTimeout(f"no answer within {timeout_s:.3g} s")
        if isinstance(answer[0], RinglogError):
            raise answer[0]
        return answer[0]

    # -- topics ----------------------------------------------------------------------------------------------

    def topic(self, name: str, *, create: bool = False, timeout_s: float | None = None) -> TopicMetadata:
        """A topic's metadata, from memory while they are fresh. UnknownTopic unless it is there or may be created."""
        fresh = self._topics.fresh(name)
        if fresh is not None:
            return fresh
        found = self.topic_told(name, create=create, timeout_s=timeout_s)
        return self._topics.known(name) or found

    def topic_told(self, name: str, *, create: bool = False, timeout_s: float | None = None) -> TopicMetadata:
        """What a node says of a topic now. UnknownTopic unless it is there or may be created; in a cluster not at the
        first word, since a node may hear of a new topic later than the one that made it."""
        pauses_s = list(_HEARD_LATER_S)
        while True:
            reply = self.metadata([name], create=create, timeout_s=timeout_s)
            found = next((topic for topic in reply.topics if topic.name == name), None)
            if found is None:
                raise CorruptFrame(
                    "topics", 32, f"topic {name!r} was asked for, and the reply is about others"
                )
            error = topic_error(found)
            if error is None:
                return found
            if not (pauses_s and reply.brokers and isinstance(error, UnknownTopic)):
                raise error
            time.sleep(pauses_s.pop(0))

    def metadata(
        self, topics: list[str] | None, *, create: bool = False, timeout_s: float | None = None
    ) -> MetadataReply:
        """What a node that does not lag behind says of topics, None: of all, and of its cluster."""
        return self.call(
            Api.METADATA,
            MetadataRequest(topics, create),
            MetadataReply,
            timeout_s=timeout_s,
            accept=self.learn_all,
        )

    def topic_now(self, name: str) -> TopicMetadata | None:
        """What is known of a topic, perhaps stale, without waiting. What is missing or stale is asked for."""
        fresh = self._topics.fresh(name)
        if fresh is None:
            self._refresh(name)
        return fresh or self._topics.known(name)

    def is_gone(self, name: str) -> bool:
        """Whether a topic that was known here was deleted since."""
        return self._topics.is_gone(name)

    def forget(self, name: str) -> None:
        """What is known of a topic proved wrong: ask again at the next need."""
        self._topics.forget(name)

    def drop(self, name: str) -> None:
        """A topic was deleted: know nothing of it."""
        gone = self._topics.drop(name)
        if gone is not None:
            self._view.forget(gone)

    def look_again(self, *names: str) -> None:
        """What is known of topics proved wrong: ask again now, without waiting."""
        for name in names:
            self.forget(name)
        self._refresh(*names)

    def nodes_in(self, rack: str) -> frozenset[int]:
        """The living nodes of a rack, as far as they are known."""
        return self._view.nodes_in(rack)

    def learn(self, reply: TopicReply) -> None:
        """A reply told of a topic."""
        check_whole(reply.topic)
        self._view.learn_change(reply)
        self._keep([reply.topic], reply.version)

    def learn_all(self, reply: MetadataReply) -> None:
        """A reply told of topics and of the cluster. StaleMetadata when the node lags behind: another is asked next."""
        for topic in reply.topics:
            check_whole(topic)
        try:
            self._view.learn(reply)
        except StaleMetadata:
            if self._loop is not None:
                self._loop.leave_home(reply.node_id)
            raise
        self._keep(reply.topics, reply.version)

    def _keep(self, topics: Iterable[TopicMetadata], version: int) -> None:
        replaced = [self._topics.put(topic, version) for topic in topics]
        for gone in (*replaced, *self._topics.sweep()):
            if gone is not None:
                self._view.forget(gone)

    def _refresh(self, *names: str) -> None:
        wanted = [name for name in names if self._topics.ask_once(name)]
        if not wanted:
            return
        topics = self._topics
        here = weakref.ref(self)

        def on_reply(header: Header, body: memoryview) -> None:
            topics.not_answered(*wanted)
            connection = here()
            if connection is None:
                return
            try:
                connection.learn_all(decode_body(body, MetadataReply, bytes_max=REPLY_BODY_BYTES_MAX))
            except StaleMetadata:
                return  # whoever needs the topic asks again, and another node is asked then
            connection.wake()

        def on_error(error: RinglogError) -> None:
            topics.not_answered(*wanted)

        timeout_s = self.settings.request_timeout_ms / 1000
        body = encode_body(MetadataRequest(wanted))
        self.send(Request(Api.METADATA, body, on_reply, on_error, timeout_s=timeout_s))

    def share(self, near: Shares | None) -> None:
        """Let nodes on this host use memory of this process: what `near` gives, for each connection. To be said before
        the first request."""
        self._near = near

    # -- the I/O thread --------------------------------------------------------------------------------------

    def on_tick(self, tick: Tick) -> None:
        """Call `tick(now_s)` on every pass of the I/O thread; it says when it wants the next one, None: any time.

        `now_s` is `time.monotonic()`. Of a bound method only a weak reference is kept.
        """
        held = _weakly(tick)
        with self._lock:
            self._ticks.append(held)
            if self._loop is not None:
                self._loop.add_tick(held)

    def on_end(self, handler: Ended) -> None:
        """Call a bound method on the I/O thread when a bug ends that, with the reason: nothing is sent any more."""
        self._at_end.append(weakref.WeakMethod(handler))

    def on_fork(self, handler: Callable[[], None]) -> None:
        """Call a bound method in the child of a fork, to drop what belongs to the parent."""
        self._fork_handlers.append(weakref.WeakMethod(handler))

    def wake(self) -> None:
        """Let the I/O thread make a pass, and start it if it does not run."""
        if not self.closed:
            (self._loop or self._started()).wake()

    def check_runs(self) -> None:
        """Raise why the I/O thread ended, if it has: a bug, which must not look like silence of the node."""
        loop = self._loop
        if loop is not None and loop.ended is not None and not self.closed:
            loop.check_runs()

    def on_io_thread(self) -> bool:
        """Whether the caller is the I/O thread, which must not wait for answers."""
        return self._loop is not None and self._loop.on_thread()

    def check_may_wait(self) -> None:
        """InvalidRequest on the I/O thread: what it would wait for is its own work."""
        if self.on_io_thread():
            raise InvalidRequest("a callback may not wait for the node: hand the work to another thread")

    def close(self) -> None:
        """End the thread and the connection; what is not answered fails with ClientClosed. Twice is fine."""
        self.closed = True
        with self._lock:
            finalizer = self._finalizer
        if finalizer is not None:
            finalizer()

    def _started(self) -> Loop:
        with self._lock:
            if self._loop is None:
                name = f"ringlog-client-{self.settings.client_id or hex(id(self))[2:]}"
                here = weakref.ref(self)
                loop = Loop(self._view, name, lambda: _look_around(here), self._near)
                for tick in self._ticks:
                    loop.add_tick(tick)
                loop.add_end(lambda why: _tell_end(here, why))
                self._finalizer = weakref.finalize(self, loop.stop)
                self._loop = loop  # before its first tick, which may ask which thread it is on
                loop.start()
            return self._loop

    def _after_fork(self) -> None:
        if self._loop is not None:
            _of_the_parent.append(self._loop)
            if self._finalizer is not None:
                self._finalizer.detach()
        self._begin()
        for held in self._fork_handlers:
            handler = held()
            if handler is not None:
                handler()


def _tell_end(here: weakref.ref[Connection], why: RinglogError) -> None:
    connection = here()
    if connection is None or isinstance(why, ClientClosed):
        return  # whoever closes a client knows
    for held in connection._at_end:
        handler = held()
        if handler is not None:
            handler(why)


def _look_around(here: weakref.ref[Connection]) -> None:
    connection = here()
    if connection is not None:
        connection.look_again(*connection._topics.names())


def _weakly(tick: Tick) -> Tick:
    if not isinstance(tick, MethodType):
        return tick
    function, here = tick.__func__, weakref.ref(tick.__self__)

    def call(now_s: float) -> float | None:
        held = here()
        return None if held is None else function(held, now_s)

    return call


def _reset_in_child() -> None:
    for connection in list(_live):
        connection._after_fork()


os.register_at_fork(after_in_child=_reset_in_child)
