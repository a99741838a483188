"""Shows people what clients of the library warn of, such as a node that does not answer, as lines of the command."""

from __future__ import annotations

import functools
import logging

from cli.printable import printable
from cli.screen import say_above_bar


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            say_above_bar(f"ringlog: {printable(record.getMessage())}.")
        except Exception:
            self.handleError(record)  # as other handlers do: the thread that warns is the client's own


@functools.cache
def show_client_warnings() -> None:
    """From now on, on stderr, unless the command shows its log in another way."""
    logger = logging.getLogger("ringlog.client")
    if not logger.hasHandlers():
        logger.addHandler(_Lines(logging.WARNING))
