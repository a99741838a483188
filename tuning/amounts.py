"""Amounts as people write them: `1M`, `48TB`, `64MiB`, `25Gbit`, `7d`; and back into text. Pure."""

from __future__ import annotations

import re

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SECONDS = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(i?)(b|bit|bits|b/s|bit/s)?", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|w)?")


def parse_amount(text: str) -> float:
    """A number with a unit: K, M, G, T, P are powers of 1,000, Ki, Mi, … of 1,024; bits become bytes.

    >>> parse_amount("1M"), parse_amount("64MiB"), parse_amount("25Gbit")
    (1000000.0, 67108864.0, 3125000000.0)
    """
    found = _AMOUNT.fullmatch(text.strip())
    if not found or (found[3] and not found[2]):
        raise ValueError(f"{text!r} is no amount: write it as 500, 1.5M, 48TB, 64MiB or 25Gbit")
    unit = (found[4] or "").lower()
    value = float(found[1]) * (1024.0 if found[3] else 1000.0) ** _POWERS[found[2].lower()]
    return float(value / 8 if unit.startswith("bit") else value)


def parse_duration_s(text: str) -> float:
    """A time in seconds; a bare number is one.

    >>> parse_duration_s("7d"), parse_duration_s("5m"), parse_duration_s("250ms")
    (604800.0, 300.0, 0.25)
    """
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no duration: write it as 90, 250ms, 5m, 12h, 7d or 2w")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def bytes_text(nbytes: float) -> str:
    """Decimal bytes, with three digits that matter.

    >>> bytes_text(86.4e12), bytes_text(1.8144e15), bytes_text(512)
    ('86.4 TB', '1.81 PB', '512 B')
    """
    for power, unit in enumerate(("B", "KB", "MB", "GB", "TB")):
        if nbytes < 999.5 * 1000**power:
            return f"{nbytes / 1000**power:.3g} {unit}"
    return f"{nbytes / 1e15:,.3g} PB"


def binary_text(nbytes: int) -> str:
    """Binary bytes as settings have them.

    >>> binary_text(256 << 20), binary_text(3 << 29), binary_text(1000)
    ('256 MiB', '1.5 GiB', '1000 B')
    """
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if nbytes >= 1024**power and nbytes * 2 % 1024**power == 0:
            return f"{nbytes / 1024**power:g} {unit}"
    return f"{nbytes} B"


def count_text(count: float) -> str:
    """A count with a short unit.

    >>> count_text(60e6), count_text(1_234), count_text(38)
    ('60 M', '1.23 K', '38')
    """
    for power, unit in ((4, " T"), (3, " G"), (2, " M"), (1, " K")):
        if count >= 1000**power:
            return f"{count / 1000**power:.3g}{unit}"
    return f"{count:.3g}"


def duration_text(seconds: float) -> str:
    """A time, with two units at most.

    >>> duration_text(300), duration_text(604800), duration_text(0.25), duration_text(5400)
    ('5 min', '7 d', '0.25 s', '1 h 30 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    parts: list[str] = []
    left = round(seconds)
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if left >= unit_s and len(parts) < 2:
            parts.append(f"{left // unit_s:,} {unit}")
            left %= unit_s
        elif parts:
            break
    return " ".join(parts)
