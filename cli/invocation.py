"""How this command was started, so that what it tells people to type works where they stand."""

from __future__ import annotations

import os
import shlex
import shutil
import sys


def pasteable(*arguments: str) -> str:
    """A command line of ringlog, quoted for a shell, that starts the same ringlog as this one.

    >>> pasteable("log", "verify", "my data").endswith("log verify 'my data'")
    True
    """
    return shlex.join([*_program(), *arguments])


def _program() -> list[str]:
    started = sys.argv[0] if sys.argv else ""
    found = shutil.which("ringlog")
    if os.path.basename(started) != "ringlog":
        # Run as a module, or from inside another program.
        return ["ringlog"] if found else [sys.executable, "-m", "cli.main"]
    if found and os.path.exists(started) and os.path.samefile(found, started):
        return ["ringlog"]
    return [started]
