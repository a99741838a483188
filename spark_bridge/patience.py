"""Asks a node again while a part of it is being restarted: how long a query waits before an error ends it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ringlog.errors import RinglogError

T = TypeVar("T")

_ATTEMPT_S = 20.0
"""For one answer: a question that nobody answers is asked again."""
_PAUSE_S, _PAUSE_MAX_S = 0.05, 1.0

log = logging.getLogger(__name__)


def patiently(
    ask: Callable[[float], T],
    patience_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """The answer of `ask(timeout_s)`, asked again after errors that a retry can help, until the patience is over: then
    the last one is raised. Others are raised at once. Asking twice must do no harm.

    >>> patiently(lambda timeout_s: f"{timeout_s:.0f} s for an attempt", patience_s=60)
    '20 s for an attempt'
    """
    deadline_s = clock() + patience_s
    pause_s = _PAUSE_S
    while True:
        left_s = deadline_s - clock()
        try:
            return ask(max(0.001, min(left_s, _ATTEMPT_S)))
        except RinglogError as error:
            if not error.retriable or clock() + pause_s >= deadline_s:
                raise
            log.info("asked again in %.2g s: %s", pause_s, error)
        sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)
