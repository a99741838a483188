"""How long a caller is ready to wait: checked when it is said, since clocks and locks do not take every number."""

from __future__ import annotations

import threading
from numbers import Real
from typing import Any

from ringlog.errors import InvalidRequest

WAIT_S_MAX = int(threading.TIMEOUT_MAX) // 2
"""Half of what a lock takes: a time so far from now is still one. More than a hundred years."""


def checked_s(given: Any, name: str = "timeout") -> float:
    """A wait in seconds that a user named; none when it is negative. InvalidRequest for what is no such number.

    >>> checked_s(1.5), checked_s(-1)
    (1.5, 0.0)
    >>> checked_s(float("inf"))
    Traceback (most recent call last):
    ringlog.errors.InvalidRequest: timeout must be a number of seconds below 4611686018, not inf
    """
    return _checked(given, name, "seconds", WAIT_S_MAX)


def checked_ms(given: Any, name: str = "timeout_ms") -> float:
    """A wait in milliseconds that a user named, in seconds.

    >>> checked_ms(1500)
    1.5
    """
    return _checked(given, name, "milliseconds", WAIT_S_MAX * 1000) / 1000


def _checked(given: Any, name: str, unit: str, most: int) -> float:
    # First what nearly all are: to ask for an abstract type costs more. No number is below one that is none.
    if not isinstance(given, (int, float, Real)) or not given < most:
        raise InvalidRequest(f"{name} must be a number of {unit} below {most}, not {given!r}")
    return 0.0 if given <= 0 else float(given)
