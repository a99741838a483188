"""Where `ringlog consume` begins: what `--from` may say. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBER_MAX = 2**63 - 1
"""Offsets and times have 63 bits."""
OFFSET_DIGITS_MAX = 11
"""A number with more digits is a time: no log gets so long, and 12 digits of milliseconds are the year 1973."""


class StartKind(Enum):
    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    TIME = "time"


class StartPoint(NamedTuple):
    """A place in every partition: for OFFSET the offset, for TIME milliseconds since 1970."""

    kind: StartKind
    value: int = 0


def parse_start(text: str) -> StartPoint:
    """The place that a user named. ValueError says what can be named.

    >>> parse_start("42"), parse_start("1700000000000").kind
    (StartPoint(kind=<StartKind.OFFSET: 'offset'>, value=42), <StartKind.TIME: 'time'>)
    >>> parse_start("2023-11-14T22:13:20Z").value, parse_start("offset:1700000000000").kind.value
    (1700000000000, 'offset')
    """
    word = text.strip()
    if word in ("beginning", "start", "earliest"):
        return StartPoint(StartKind.BEGINNING)
    if word in ("end", "latest"):
        return StartPoint(StartKind.END)
    prefix, colon, rest = word.partition(":")
    if colon and prefix in ("offset", "time") and rest.isascii() and rest.isdigit():
        return StartPoint(StartKind(prefix), _number(rest))
    if word.isascii() and word.isdigit():
        is_time = len(word) > OFFSET_DIGITS_MAX
        return StartPoint(StartKind.TIME if is_time else StartKind.OFFSET, _number(word))
    try:
        moment = datetime.fromisoformat(rest if colon and prefix == "time" else word)
    except ValueError:
        raise ValueError(
            f"{text!r} is no place to begin: say beginning, end, an offset, a time such as 2026-11-16T08:00:00Z, or "
            "milliseconds since 1970 (offset:N and time:N say which a number is)"
        ) from None
    # A time without a zone is the user's own; no record is older than the epoch.
    since_ms = (moment.astimezone() - _EPOCH) // timedelta(milliseconds=1)
    return StartPoint(StartKind.TIME, max(0, since_ms))


def _number(digits: str) -> int:
    if len(digits) > len(str(NUMBER_MAX)) or int(digits) > NUMBER_MAX:
        raise ValueError(f"{digits[:30]} is more than an offset or a time can be: {NUMBER_MAX}")
    return int(digits)
