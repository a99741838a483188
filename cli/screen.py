"""The screen for people: tables and progress, by rich, which must not decide how a command ends."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from cli.printable import printable

TABLE_CHARS_MAX = 10_000
_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?")


class Screen(Console):
    """A console that tells of a closed pipe, where rich would end the program with 1."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, highlight=False, width=width)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise BrokenPipeError


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None
) -> None:
    """Print rows under headings: numbers to the right, with separators; no row is cut or wrapped.

    Names and settings come from others: they are shown as text, never read as markup.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title=title, title_justify="left")
    for column, heading in enumerate(headings):
        is_number = bool(rows) and all(_NUMBER.fullmatch(_cell(row[column]).plain) for row in rows)
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True, overflow="crop")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    # As wide as it needs to be: a terminal wraps what is too long, and whoever reads a pipe wants whole lines.
    Screen(width=TABLE_CHARS_MAX).print(table, crop=False)


def _cell(value: object) -> Text:
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, int):
        return Text(f"{value:,}")
    return Text(printable(str(value)))


def say_above_bar(line: str) -> None:
    """A line on stderr, where a bar may stand: it takes the bar's place, and the bar goes on below it."""
    if sys.stderr is None:
        return  # it was closed by who began the command; `print` would take stdout
    erase = "\r\x1b[2K" if sys.stderr.isatty() else ""
    print(f"{erase}{line}", file=sys.stderr, flush=True)


@contextmanager
def progress_bar(total: float | None) -> Iterator[Callable[[float, str], None]]:
    """A bar on stderr when that is a terminal, else nothing. Call what it yields with (done so far, text)."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, text: None
        return
    columns = (BarColumn(bar_width=24), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(
        *columns, console=Screen(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
    ) as live:
        task = live.add_task("", total=total)
        yield lambda done, text: live.update(task, completed=done, description=text)


@contextmanager
def late_bar(after_s: float) -> Iterator[Callable[[str], None]]:
    """A line of progress on stderr that comes only when something takes longer. Call what it yields with a text."""
    with ExitStack() as stack:
        began_s = time.monotonic()
        update: Callable[[float, str], None] | None = None

        def show(text: str) -> None:
            nonlocal update
            if update is None:
                if time.monotonic() - began_s < after_s:
                    return
                update = stack.enter_context(progress_bar(None))
            update(0, text)

        yield show
