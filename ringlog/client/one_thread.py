"""Keeps two threads from using one consumer at once: what one takes, the other would lose."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ringlog.errors import InvalidRequest

P = ParamSpec("P")
T = TypeVar("T")


class OneThread:
    """Held by the thread that is in a call; its own callbacks and signal handlers may call again."""

    def __init__(self) -> None:
        self._held = threading.RLock()

    def __enter__(self) -> None:
        if not self._held.acquire(blocking=False):
            raise InvalidRequest("another thread uses this consumer just now: give each thread its own")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.release()


class Guarded(Protocol):
    """Has one for its calls."""

    _one_thread: OneThread


S = TypeVar("S", bound=Guarded)


def alone(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that a second thread may not enter while one is in there, or in another such method."""

    @functools.wraps(method)
    def call(self: S, /, *arguments: P.args, **named: P.kwargs) -> T:
        with self._one_thread:
            return method(self, *arguments, **named)

    return call
