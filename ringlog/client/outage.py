"""Says in the log when a client waits for nodes that do not answer: whoever waits for a minute should know for what."""

from __future__ import annotations

import logging
from collections.abc import Sequence

TELL_AFTER_S = 3.0
"""A node that is started anew, or a leader that changes, is back sooner."""

_log = logging.getLogger(__name__)


class Outage:
    """The time since a connection worked last. It is told once, and that it is over."""

    def __init__(self, now_s: float) -> None:
        self._since_s = now_s
        self._is_told = False

    def begin(self, now_s: float) -> None:
        """The connection was lost."""
        self._since_s, self._is_told = now_s, False

    def end(self, endpoint: str) -> None:
        """A node answers."""
        if self._is_told:
            _log.info("the node at %s answers now", endpoint)

    @property
    def due_s(self) -> float | None:
        """When it is to be told, if somebody waits; None: it was."""
        return None if self._is_told else self._since_s + TELL_AFTER_S

    def tell(self, now_s: float, words: str) -> None:
        """Tell of it, if it is time."""
        if not self._is_told and now_s >= self._since_s + TELL_AFTER_S:
            self._is_told = True
            _log.warning("%s. It is tried again", words)


def words_for(named: Sequence[str], *, is_taken: bool, was_up: bool) -> str:
    """What is so, and what to do. `is_taken`: somebody listens there, and does not answer as a node does.

    >>> print(words_for(["tcp://127.0.0.1:9400"], is_taken=False, was_up=False))
    no node answers at 127.0.0.1:9400. Is one running? `ringlog start` starts one; or check the address (bootstrap)
    >>> print(words_for(["tcp://127.0.0.1:80"], is_taken=True, was_up=False))  # doctest: +NORMALIZE_WHITESPACE
    what listens at 127.0.0.1:80 does not answer as a node of ringlog does. Check the address (bootstrap). Of a
    node that waits for the others of its cluster, stands still, or has too many connections, `ringlog status` says so
    """
    where = ", ".join(endpoint.removeprefix("tcp://") for endpoint in named)
    if was_up:
        return f"the connection to {where} was lost and is not back. Is the node running? `ringlog start` starts one"
    if is_taken:
        return (
            f"what listens at {where} does not answer as a node of ringlog does. Check the address (bootstrap). Of a "
            "node that waits for the others of its cluster, stands still, or has too many connections, "
            "`ringlog status` says so"
        )
    return f"no node answers at {where}. Is one running? `ringlog start` starts one; or check the address (bootstrap)"
