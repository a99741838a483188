"""Turns what goes wrong into one line on stderr, of text or of JSON, and a stable exit code; never a traceback.

====  ==========================================================================
  0   done, and nothing is wrong
  1   done, and broken data was found: `log dump` and `log verify` say where; `doctor --strict`: speed is lost;
      `cluster drain` and `cluster reassign`: a partition could not be moved
  2   the command line is wrong
  3   ringlog refused: the request, or the data that it needs, is wrong
  4   ringlog could not do it now; the same command may work later
  5   the operating system refused: a path, a permission, a device, a full disk
130   interrupted (Ctrl-C)
141   the reader of the output went away, as in `| head`
====  ==========================================================================
"""

from __future__ import annotations

import errno
import io
import os
import sys
from enum import IntEnum
from typing import Any

import click

from cli.printable import printable
from ringlog.errors import (
    CorruptInput,
    DiskFull,
    InvariantBroken,
    NodeUnavailable,
    RinglogError,
    UnknownGroup,
)


class ExitCode(IntEnum):
    """What the shell is told. Scripts rely on these numbers."""

    OK = 0
    BROKEN_DATA = 1
    USAGE = 2
    REFUSED = 3
    RETRY = 4
    SYSTEM = 5
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


_ADVICE_BY_ERRNO = {
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "Check the path.",
    errno.EISDIR: "Give a file, not a directory.",
    errno.EACCES: "Run it as the user that owns the data.",
    errno.EPERM: "Run it as the user that owns the data.",
    errno.EIO: "The device failed: copy what can be read, and look into the kernel's log.",
    errno.EROFS: "Mount it for writing, or name another directory.",
    errno.ENOSPC: "Free some space.",
    errno.EMFILE: "Raise the limit of open files: ulimit -n.",
}


def failure_line(error: RinglogError | OSError) -> str:
    """What happened and what to do, in one line.

    >>> failure_line(FileNotFoundError(errno.ENOENT, "No such file or directory", "/data"))
    'ringlog: /data: No such file or directory. Check the path.'

    Who raised an error of the system may know better what to do, and says so in a note.

    >>> error = PermissionError(errno.EACCES, "Permission denied", "/build")
    >>> error.add_note("Name another directory: --dir DIR.")
    >>> failure_line(error)
    'ringlog: /build: Permission denied. Name another directory: --dir DIR.'
    """
    return f"ringlog: {_message(error)}"


def failure_json(error: RinglogError | OSError | click.ClickException, **done: Any) -> str:
    """The same for programs: an object on a line. `code` is that of the library's error, or one of the two that only
    commands have; `done` are fields that say how far the command had come.

    >>> failure_json(FileNotFoundError(errno.ENOENT, "No such file or directory", "/data"))
    '{"code":"SYSTEM_ERROR","message":"/data: No such file or directory. Check the path.","retriable":false}'
    """
    import json

    retriable = False
    if isinstance(error, click.ClickException):
        is_empty = isinstance(error, click.exceptions.NoArgsIsHelpError)  # its message is the whole help
        code, message = "WRONG_USAGE", printable("Missing command." if is_empty else error.format_message())
    elif isinstance(error, RinglogError):
        code, message, retriable = error.code, _message(error), error.retriable
    else:
        code, message = "SYSTEM_ERROR", _message(error)
    told = {"code": code, "message": message, "retriable": retriable, **done}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _message(error: RinglogError | OSError) -> str:
    if not isinstance(error, RinglogError):  # RequestTimeout is an OSError, too
        what = error.strerror or str(error)
        if error.filename is not None:
            what = f"{os.fsdecode(error.filename)}: {what}"
        known = _ADVICE_BY_ERRNO.get(error.errno or 0, "The system's manual explains the error.")
        advice = " ".join(getattr(error, "__notes__", ())) or known
    else:
        what, advice = str(error) or (type(error).__doc__ or "").split("\n\n")[0], _advice(error)
        if _says_what_to_do(what):
            return printable(what)
    return printable(f"{what.rstrip('.')}. {advice}")


def _says_what_to_do(message: str) -> bool:
    """Whether a message has a second sentence or clause: errors say what happened first, then what to do.

    >>> _says_what_to_do("no node answers. Start one."), _says_what_to_do("orders-0 is busy.")
    (True, False)
    """
    return any(
        mark in message.rstrip(".") for mark in (". ", "? ", "; ", ": try ", ": use ", ": say ", ", so use ")
    )


def _advice(error: RinglogError) -> str:
    if isinstance(error, InvariantBroken):
        return "This is a bug of ringlog: please report it with this line."
    if isinstance(error, CorruptInput):
        return "`ringlog log verify` lists all that is broken."
    if isinstance(error, DiskFull):
        return _ADVICE_BY_ERRNO[errno.ENOSPC]
    if isinstance(error, NodeUnavailable):
        return "Start one with `ringlog start`, or check --bootstrap or --data-dir."
    if isinstance(error, UnknownGroup):
        return "`ringlog group list` shows those that there are."
    if error.retriable:
        return "Try again in a moment."
    return "See --help."


def exit_code(error: RinglogError | OSError) -> ExitCode:
    """The code for an error that ended a command.

    >>> from ringlog.errors import PartitionBusy
    >>> exit_code(PartitionBusy("orders-0 is busy")).name
    'RETRY'
    """
    if not isinstance(error, RinglogError) or isinstance(error, DiskFull):
        return ExitCode.SYSTEM
    return ExitCode.RETRY if error.retriable else ExitCode.REFUSED


def drop_output() -> None:
    """Nobody waits for the rest of our output: let the interpreter flush it to nowhere when it ends."""
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:
        return  # not a file: whoever runs us inside a program keeps what was printed
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, descriptor)
    finally:
        os.close(nowhere)
