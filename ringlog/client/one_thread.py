"""Keeps two threads from using one consumer at once: what one takes, the other would lose."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ringlog.errors import InvalidRequest

P = ParamSpec("P")
T = TypeVar("T")


class OneThread:
    """Held by the thread that is in a call; its own callbacks and signal handlers may call again."""

    def __init__(self) -> None:
        held = threading.RLock()
        self._acquire = held.acquire
        self.leave = held.release

    def enter(self) -> None:
        """InvalidRequest while another thread is in there; else `leave` must follow."""
        if not self._acquire(blocking=False):
            raise InvalidRequest("another thread uses this consumer just now: give each thread its own")


class Guarded(Protocol):
    """Has one for its calls."""

    _one_thread: OneThread


S = TypeVar("S", bound=Guarded)


def alone(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that a second thread may not enter while one is in there, or in another such method."""

    @functools.wraps(method)
    def call(self: S, /, *arguments: P.args, **named: P.kwargs) -> T:
        one_thread = self._one_thread
        one_thread.enter()
        try:
            return method(self, *arguments, **named)
        finally:
            one_thread.leave()

    return call
