"""The entry of the `ringlog` command: lets Ctrl-C end it without a traceback, also while the rest is imported.

So it imports nothing itself: what comes before `main` is not guarded.
"""

from __future__ import annotations

import sys

_INTERRUPTED = 130
"""`ExitCode.INTERRUPTED`, which is not imported yet."""


def main() -> None:
    """The console script."""
    try:
        from cli.commands import ringlog
        from cli.streams import prepare_streams

        prepare_streams()
        ringlog()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
