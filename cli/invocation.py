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
    if os.path.basename(started) != "ringlog":
        # Run as a module, or from inside another program: the script was installed beside the interpreter.
        started = os.path.join(os.path.dirname(sys.executable), "ringlog")
    if not os.path.exists(started):
        return [sys.executable, "-m", "cli.main"]
    on_path = shutil.which("ringlog")
    return ["ringlog"] if on_path and os.path.samefile(on_path, started) else [started]
