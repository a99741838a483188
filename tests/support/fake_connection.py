"""A client's connection without a thread or a socket: a model broker answers when the client wakes it."""

from __future__ import annotations

import time

from ringlog.errors import ClientClosed, RinglogError, UnknownTopic
from ringlog.net.framing import HEADER_BYTES, Header
from ringlog.net.messages import decode_body, encode_body
from tests.support.model_broker import ModelBroker


class FakeConnection:
    """As `ringlog.client.connection.Connection`; all happens in `wake`, on the caller's thread."""

    broker: ModelBroker

    def __init__(self, settings) -> None:
        self.settings = settings
        self.closed = False
        self.forgotten: list[str] = []
        self._ticks = []
        self._outbox = []
        self._awake = False

    def on_tick(self, tick) -> None:
        self._ticks.append(tick)

    def on_end(self, handler) -> None:
        """No thread, no end."""

    def on_fork(self, handler) -> None:
        """Nobody forks."""

    def share(self, near) -> None:
        """Replies are handed over as they are."""

    def check_runs(self) -> None:
        """It always does."""

    def send(self, request) -> None:
        if self.closed:
            request.on_error(ClientClosed("closed"))
        else:
            self._outbox.append(request)

    def wake(self) -> None:
        """Ticks and answers until nothing more happens; fetches that have to wait do so until the next call."""
        if self._awake or self.closed:
            return
        self._awake = True
        waiting = []
        while True:
            for tick in self._ticks:
                tick(time.monotonic())
            if not self._outbox:
                break
            request = self._outbox.pop(0)
            try:
                body = self.broker.answer(request.api, request.body)
            except RinglogError as error:
                request.on_error(error)
                continue
            if body is None:
                waiting.append(request)
            else:
                size = len(body) + HEADER_BYTES
                request.on_reply(Header(1, request.api, 0, 0, 0, 0, 0, size), memoryview(body))
        self._outbox = waiting
        self._awake = False

    def call(self, api, body, reply_type, *, partition=0, timeout_s=None, on_retry=None):
        return decode_body(self.broker.answer(api, encode_body(body)), reply_type)

    def topic(self, name, *, create=False, timeout_s=None):
        if name != "t":
            raise UnknownTopic(f"there is no topic '{name}'")
        return self.broker.metadata()

    def forget(self, name) -> None:
        self.forgotten.append(name)

    def learn_all(self, reply) -> None:
        """There is one node, which never lags behind."""

    def close(self) -> None:
        self.closed = True
