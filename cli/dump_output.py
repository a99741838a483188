"""Prints the lines of `ringlog log dump`, as text for people or as JSON for scripts."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import click

from cli.dump_json import json_line
from cli.dump_text import TextLines
from cli.output import GatheredOutput
from ringlog.disk.api import Disk
from ringlog.log.dump import (
    Batch,
    FileKind,
    IndexEntry,
    Line,
    ProducerEntry,
    Record,
    TimeIndexEntry,
    Unreadable,
    dump_file,
    require_known,
    segment_paths,
)


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What the user asked for."""

    records: bool
    from_offset: int
    count: int | None
    max_bytes: int
    utc: bool
    as_json: bool


def dump_paths(disk: Disk, path: str, options: DumpOptions) -> bool:
    """Print a file, or all segments of a directory. False when a part of them could not be read."""
    if os.path.isdir(path):
        paths = segment_paths(disk, path.rstrip("/") or "/", options.from_offset)
        if not paths:
            raise click.UsageError(f"{path}: no segments in this directory. Give that of a partition.")
    else:
        paths = [path]
        kind = require_known(path).kind
        if options.records and kind is not FileKind.SEGMENT:
            raise click.UsageError(f"--records: {path} is a {kind}; only segments have records.")
    with GatheredOutput() as out:
        printer = _Printer(options, out)
        for each in paths:
            if not printer.print_file(disk, each):
                break
    return not printer.found_broken


class _Printer:
    """Counts what it prints, and remembers whether anything was broken."""

    def __init__(self, options: DumpOptions, out: GatheredOutput) -> None:
        self._options = options
        self._out = out
        self._left = options.count
        self.found_broken = False

    def print_file(self, disk: Disk, path: str) -> bool:
        """Print a file; False when as much was printed as was asked for."""
        options = self._options
        lines = dump_file(disk, path, records=options.records, from_offset=options.from_offset)
        to_text = self._formatter(path)
        with closing(lines):
            for line in lines:
                if _is_counted(line):
                    if self._left == 0:
                        return False
                    if self._left is not None:
                        self._left -= 1
                self.found_broken |= isinstance(line, Unreadable)
                self._out.write(to_text(line))
        return True

    def _formatter(self, path: str) -> Callable[[Line], str]:
        options = self._options
        if options.as_json:
            return lambda line: json_line(path, line)
        text = TextLines(utc=options.utc, max_bytes=options.max_bytes)
        self._out.write(text.heading(path, require_known(path).kind, records=options.records))
        return text.line


def _is_counted(line: Line) -> bool:
    return isinstance(line, Record | IndexEntry | TimeIndexEntry | ProducerEntry) or (
        isinstance(line, Batch) and line.crc_ok
    )
