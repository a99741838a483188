"""Makes the three standard streams fit for use, whatever the shell handed over."""

from __future__ import annotations

import io
import os
import sys


def prepare_streams() -> None:
    """Open to nowhere what the shell closed (`>&-`), and let no letter of a record be an error.

    A closed descriptor would be given to the next file that is opened, and output would go into that file.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDONLY if descriptor == 0 else os.O_WRONLY)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        # Record bytes can be any text; a terminal that lacks a letter gets its code instead of an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
