"""What is wrong with an option, told as wrong usage (exit code 2) also where the library is what judges it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def judging_options() -> Iterator[None]:
    """An InvalidRequest in here is about the command line.

    >>> from ringlog.errors import InvalidRequest
    >>> with judging_options():
    ...     raise InvalidRequest("listen='here': use tcp://HOST:PORT")
    Traceback (most recent call last):
    click.exceptions.UsageError: listen='here': use tcp://HOST:PORT
    """
    from ringlog.errors import InvalidRequest

    try:
        yield
    except InvalidRequest as wrong:
        raise click.UsageError(str(wrong)) from None
