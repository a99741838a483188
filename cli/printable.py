"""Makes any text fit for one line of output: file names may hold line breaks and bytes that are no text."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text, with a code in place of every character that cannot be printed.

    >>> print(printable("orders-0/a\nb\udcff"))
    orders-0/a\nb\udcff
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _code(letter) for letter in text)


def _code(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
