"""Lets producers that nobody closed finish when the program ends: what it produced last is sent, or told of."""

from __future__ import annotations

import atexit
import logging
import time
import weakref
from typing import Protocol

from ringlog.errors import RinglogError

LAST_FLUSH_S = 5.0
"""How long the end of a program may be held up, by all its producers together."""

_log = logging.getLogger(__name__)


class Flushable(Protocol):
    """A producer."""

    def has_unfinished(self) -> bool: ...

    def flush(self, timeout: float | None = None) -> None: ...


_live: weakref.WeakSet[Flushable] = weakref.WeakSet()
"""Producers that were made and not closed."""
_is_registered = False


def expect_close(producer: Flushable) -> None:
    """Flush it at the end of the program, if it was not closed by then."""
    global _is_registered
    if not _is_registered:
        # What is registered last is called first, and this must be before weakref ends the threads of clients: that
        # registers itself with the first finalizer of a program, and a producer has one by now.
        atexit.register(flush_all)
        _is_registered = True
    _live.add(producer)


def closed(producer: Flushable) -> None:
    """It was closed: nothing is left to do."""
    _live.discard(producer)


def flush_all() -> None:
    """Daemon threads, such as those of clients, still run while this does; after it they do not."""
    until_s = time.monotonic() + LAST_FLUSH_S
    for producer in [one for one in _live if one.has_unfinished()]:
        try:
            producer.flush(max(0.0, until_s - time.monotonic()))
        except RinglogError as error:
            _log.warning(
                "a producer was not closed before the program ended, and records may be lost: %s", error
            )
