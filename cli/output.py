"""What a command prints line by line: many lines gathered for one system call, or one object as a line of JSON."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

GATHERED_CHARS = 64 * 1024


def print_json(fields: Any) -> None:
    """Print an object on a line.

    >>> print_json({"name": "orders", "partitions": 4})
    {"name":"orders","partitions":4}
    """
    import msgspec

    sys.stdout.write(msgspec.json.encode(fields).decode() + "\n")


class GatheredOutput:
    """Takes lines, and hands them to stdout in large pieces; at its end, whatever happened, the last one.

    >>> with GatheredOutput() as out:
    ...     out.write("first\\n")
    ...     out.write("second\\n")
    first
    second
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._chars = 0

    def write(self, text: str) -> None:
        self._lines.append(text)
        self._chars += len(text)
        if self._chars >= GATHERED_CHARS:
            self._hand_over()

    def flush(self) -> None:
        """Show now what was gathered."""
        self._hand_over()
        sys.stdout.flush()

    def _hand_over(self) -> None:
        text = "".join(self._lines)
        self._lines.clear()
        self._chars = 0
        sys.stdout.write(text)

    def __enter__(self) -> GatheredOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Nobody reads any more, or nobody wants to: then the rest is not worth a second error.
        if not isinstance(error, BrokenPipeError | KeyboardInterrupt):
            self.flush()
