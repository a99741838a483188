"""Runs `ringlog log verify` over partitions: finds them, shows progress, prints findings and a summary."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import msgspec

from cli.failures import ExitCode
from cli.printable import printable
from ringlog.disk.api import Disk
from ringlog.log.findings import Finding, Rule
from ringlog.log.known_files import FileKind, known_file
from ringlog.log.names import parse_partition_dir
from ringlog.log.removal import is_deleted_dir
from ringlog.log.verify import iter_findings


def find_partitions(directory: str) -> list[str]:
    """The directory itself when it holds a partition's files, else the partitions right below it."""
    if _holds_partition_files(directory):
        return [directory]
    with os.scandir(directory) as entries:
        below = sorted(
            entry.path
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and not is_deleted_dir(entry.name)
        )
    found = [path for path in below if _holds_partition_files(path)]
    if not found and parse_partition_dir(os.path.basename(os.path.abspath(directory))):
        return [directory]  # a partition that nothing was ever appended to
    return found


def _holds_partition_files(directory: str) -> bool:
    with os.scandir(directory) as entries:
        return any(known_file(entry.name) is not None for entry in entries)


def verify_paths(disk: Disk, partitions: list[str], *, compacted: bool, as_json: bool) -> ExitCode:
    """Check the partitions one after another and print each finding as it is made. SYSTEM when a file could not be
    read, for then nobody knows; else BROKEN_DATA when there was a violation."""
    segments_by_path = {path: _segment_sizes(disk, path) for path in partitions}
    segments = sum(len(sizes) for sizes in segments_by_path.values())
    total_bytes = sum(sum(sizes) for sizes in segments_by_path.values())
    violations = notes = 0
    unreadable = False
    reserved: list[Finding] = []
    with _progress(total_bytes) as on_progress:
        for path in partitions:
            findings = iter_findings(disk, path, compacted=compacted, on_progress=on_progress)
            with closing(findings):
                for finding in findings:
                    unreadable |= finding.rule is Rule.READABLE
                    violations += finding.is_violation
                    notes += not finding.is_violation
                    if finding.rule is Rule.PREALLOCATED and not as_json:
                        reserved.append(finding)
                    else:
                        sys.stdout.write(_json(finding) if as_json else f"{printable(str(finding))}\n")
    sys.stdout.write(_reserved_text(reserved))
    summary = {
        "partitions": len(partitions),
        "segments": segments,
        "bytes": total_bytes,
        "violations": violations,
        "notes": notes,
    }
    if as_json:
        sys.stdout.write(msgspec.json.encode({"type": "summary", **summary}).decode() + "\n")
    else:
        sys.stdout.write(", ".join(_counted(count, what) for what, count in summary.items()) + "\n")
    if unreadable:
        return ExitCode.SYSTEM
    return ExitCode.BROKEN_DATA if violations else ExitCode.OK


def _segment_sizes(disk: Disk, path: str) -> list[int]:
    return [
        size
        for name, size in disk.list_dir(path)
        if (known := known_file(name)) and known.is_live and known.kind is FileKind.SEGMENT
    ]


def _reserved_text(notes: list[Finding]) -> str:
    """What is said of space behind logs: every partition has some that was not stopped cleanly, so one line for all."""
    if len(notes) < 2:
        return "".join(f"{printable(str(finding))}\n" for finding in notes)
    return f"note: {len(notes)} segments have space reserved behind the log, until they are closed [preallocated]\n"


def _json(finding: Finding) -> str:
    fields = {
        "type": str(finding.severity),
        "rule": finding.rule.code,
        "path": printable(finding.path),
        "byte": finding.byte,
        "must_hold": finding.rule.sentence,
        "found": finding.found,
    }
    return msgspec.json.encode(fields).decode() + "\n"


def _counted(count: int, what: str) -> str:
    """A count with its noun, which is given in the plural.

    >>> _counted(1, "notes"), _counted(2, "notes")
    ('1 note', '2 notes')
    """
    return f"{count} {what[:-1] if count == 1 else what}"


@contextmanager
def _progress(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, when that is a terminal; else nothing."""
    if not sys.stderr.isatty():
        yield lambda nbytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("verify", total=total_bytes)
        yield lambda nbytes: progress.advance(task, nbytes)
