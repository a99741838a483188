"""Stands between a membership and its connection: heartbeats leave from the I/O thread, whatever the poller does."""

from __future__ import annotations

import threading
import time
import uuid
import weakref
from collections.abc import Callable
from typing import TypeVar

from ringlog.client.connection import Connection
from ringlog.client.consumer_settings import ConsumerSettings
from ringlog.client.membership import Heartbeat, MemberSettings, Membership
from ringlog.client.metadata import LOOK_AGAIN
from ringlog.errors import CorruptFrame, RequestTimeout, RinglogError
from ringlog.limits import HEARTBEAT_WAIT_MS_MAX, OFFSETS_PARTITIONS, REPLY_BODY_BYTES_MAX
from ringlog.net.framing import Api, Header
from ringlog.net.group_messages import OFFSETS_TOPIC, GroupHeartbeatReply, GroupHeartbeatRequest
from ringlog.net.messages import decode_body, encode_body
from ringlog.net.session import Request
from ringlog.records.partitioner import partition_for

T = TypeVar("T")

_LEAVE_S = 2.0
"""How long a member that leaves waits for the answer. If none comes, its session ends by itself."""


def home_of(connection: Connection, group_id: str, timeout_s: float) -> int:
    """The id of the partition that keeps a group; the topic is made when it is not there yet."""
    topic = connection.topic(OFFSETS_TOPIC, create=True, timeout_s=timeout_s)
    index = partition_for(group_id.encode(), OFFSETS_PARTITIONS)
    return topic.partitions[index].partition


class GroupDriver:
    """Runs a membership. The lock is never held while the connection is called."""

    def __init__(
        self, connection: Connection, settings: ConsumerSettings, group_id: str, changed: Callable[[], None]
    ) -> None:
        """`changed` is called when the poller has something to do, on the I/O thread."""
        self.group_id = group_id
        self._connection = connection
        self._settings = settings
        self._changed = weakref.WeakMethod(changed)
        self._lock = threading.Lock()
        self._home = -1
        self._running = False
        self._begin()
        connection.on_tick(self.tick)
        connection.on_fork(self._begin_in_child)

    def _begin(self) -> None:
        settings = self._settings
        said = MemberSettings(
            self.group_id,
            f"{settings.client_id or 'consumer'}-{uuid.uuid4()}",
            settings.group_instance_id or "",
            settings.session_timeout_ms,
            settings.group_assignor,
            settings.client_id,
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
        )
        self._membership = Membership(said, time.monotonic())

    @property
    def member_id(self) -> str:
        return self._membership.settings.member_id

    @property
    def running(self) -> bool:
        """Whether this is, or is about to be, a member."""
        return self._running

    # -- the poller's side ---------------------------------------------------------------------------------------

    def home(self, timeout_s: float) -> int:
        """The id of the partition that keeps the group."""
        if self._home < 0:
            self._home = home_of(self._connection, self.group_id, timeout_s)
        return self._home

    def look(self, at: Callable[[Membership], T]) -> T:
        with self._lock:
            return at(self._membership)

    def change(self, how: Callable[[Membership], T]) -> T:
        """Change the membership, and let what follows from it be said."""
        with self._lock:
            result = how(self._membership)
        self._connection.wake()
        return result

    def start(self, timeout_s: float) -> None:
        """Begin to send heartbeats."""
        self.home(timeout_s)
        self._running = True
        self._connection.wake()

    def stop(self) -> None:
        """Leave the group, and wait a little for the answer."""
        if not self._running:
            return
        self._running = False
        with self._lock:
            last = self._membership.leave()
            self._begin()  # whoever comes back is another member
        if last is not None and not self._connection.closed:
            self._say_last(last)

    def _say_last(self, last: GroupHeartbeatRequest) -> None:
        done = threading.Event()
        request = Request(
            Api.GROUP_HEARTBEAT,
            encode_body(last),
            lambda header, body: done.set(),
            lambda error: done.set(),
            self._home,
            timeout_s=_LEAVE_S,
        )
        self._connection.send(request)
        done.wait(_LEAVE_S)

    # -- the connection's side -----------------------------------------------------------------------------------

    def tick(self, now_s: float) -> float | None:
        """Send the heartbeat that is due. Called on the connection's thread, on each of its passes."""
        if not self._running:
            return None
        with self._lock:
            membership = self._membership
            unsettled = membership.unsettled
            heartbeat = membership.due(now_s)
            next_s = membership.next_s(now_s)
            turned = membership.unsettled and not unsettled
        if heartbeat is not None:
            self._send(membership, heartbeat)
        if turned:
            self._tell()
        return next_s

    def _send(self, membership: Membership, heartbeat: Heartbeat) -> None:
        here = weakref.ref(self)

        def on_reply(header: Header, body: memoryview) -> None:
            driver = here()
            if driver is None:
                return
            try:
                reply = decode_body(body, GroupHeartbeatReply, bytes_max=REPLY_BODY_BYTES_MAX)
            except CorruptFrame as wrong:
                on_error(wrong)
                return
            with driver._lock:
                membership.answered(heartbeat, reply, time.monotonic())
            driver._tell()

        def on_error(error: RinglogError) -> None:
            driver = here()
            if driver is None:
                return
            if isinstance(error, (*LOOK_AGAIN, RequestTimeout)):
                driver._connection.look_again(OFFSETS_TOPIC)
            with driver._lock:
                membership.failed(heartbeat, error, time.monotonic())
            driver._tell()

        patience_ms = min(self._settings.request_timeout_ms, self._settings.session_timeout_ms // 3)
        timeout_s = (HEARTBEAT_WAIT_MS_MAX + patience_ms) / 1000
        body = encode_body(heartbeat.request)
        self._connection.send(
            Request(
                Api.GROUP_HEARTBEAT,
                body,
                on_reply,
                on_error,
                self._home,
                timeout_s=timeout_s,
                waits_s=heartbeat.request.wait_ms / 1000,
            )
        )

    def _tell(self) -> None:
        changed = self._changed()
        if changed is not None and self._membership.unsettled:
            changed()

    def _begin_in_child(self) -> None:
        """The parent is the member; the child becomes another, and has lost what the parent reads."""
        parent, self._lock = self._membership, threading.Lock()
        self._begin()
        self._membership.succeed(parent)
