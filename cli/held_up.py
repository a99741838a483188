"""Tells a person why nothing is acknowledged, while a producer tries again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cli.printable import printable
from cli.quiet import quiet
from cli.screen import say_above_bar
from ringlog.errors import NodeUnavailable, RequestTimeout, RinglogError

if TYPE_CHECKING:
    from ringlog import Producer

TELL_AFTER_S = 1.0
"""A shard that is started anew, or a leader that changes, is back sooner."""
LOOK_S = 0.1


@contextmanager
def telling_what_holds_up(producer: Producer, tries_s: float) -> Iterator[None]:
    """Say so on stderr, once, when refusals last. `tries_s` is how long the producer tries with each record."""
    ended = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(producer, tries_s, ended), name="ringlog-held-up", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _watch(producer: Producer, tries_s: float, ended: threading.Event) -> None:
    since_s: float | None = None
    while not ended.wait(LOOK_S):
        reason = producer.held_up_by()
        now_s = time.monotonic()
        if reason is None:
            since_s = None
        elif since_s is None:
            since_s = now_s
        elif now_s - since_s >= TELL_AFTER_S:
            say_above_bar(_line(reason, tries_s))
            with quiet("ringlog.client.outage"):
                ended.wait()
            return


def _line(reason: RinglogError, tries_s: float) -> str:
    """What is told: of a refusal, or of silence, which is none.

    >>> _line(NodeUnavailable("the connection was lost"), 120)[:70]
    'ringlog: no node answers for now: NODE_UNAVAILABLE, the connection was'
    """
    why = printable(f"{reason.code}, {str(reason).rstrip('.')}")
    is_silent = isinstance(reason, NodeUnavailable | RequestTimeout)
    what = "no node answers for now" if is_silent else "the node refuses the records for now"
    return f"ringlog: {what}: {why}. It is tried again for up to {tries_s:.0f} s; Ctrl-C ends it."
