"""Options that take amounts and times with units: `--record-size 1KB`, `--retention 7d`."""

from __future__ import annotations

import click

from tuning.amounts import parse_amount, parse_duration_s


def amount(text: str) -> float:
    """The type of an option that takes an amount.

    >>> amount("1KB")
    1000.0
    """
    try:
        return parse_amount(text)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from None


def duration_s(text: str) -> float:
    """The type of an option that takes a time.

    >>> duration_s("5m")
    300.0
    """
    try:
        return parse_duration_s(text)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from None
