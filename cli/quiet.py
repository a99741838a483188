"""Keeps warnings off the screen while a command shows the same thing in its own words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(logger_name: str) -> Iterator[None]:
    """Let only errors of a logger through, until the block ends.

    >>> with quiet("ringlog.log"):
    ...     logging.getLogger("ringlog.log").isEnabledFor(logging.WARNING)
    False
    """
    logger = logging.getLogger(logger_name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
