"""Reads `key=value` arguments."""

from __future__ import annotations

from collections.abc import Iterable

import click


def parse_settings(given: Iterable[str], option: str) -> dict[str, str]:
    """The pairs by key; a word without `=` and a key that comes twice are wrong usage.

    >>> parse_settings(["segment.ms=5", "x=a=b"], "--config")
    {'segment.ms': '5', 'x': 'a=b'}
    """
    settings: dict[str, str] = {}
    for key, value in parse_pairs(given, option):
        if key in settings:
            raise click.UsageError(f"{option} {key} is given twice; choose one.")
        settings[key] = value
    return settings


def parse_pairs(given: Iterable[str], option: str) -> list[tuple[str, str]]:
    """The pairs in their order; keys may come again.

    >>> parse_pairs(["trace=1", "trace=2"], "--header")
    [('trace', '1'), ('trace', '2')]
    """
    pairs: list[tuple[str, str]] = []
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option} {word!r}: write it as KEY=VALUE.")
        pairs.append((key, value))
    return pairs
