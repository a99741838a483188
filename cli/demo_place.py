"""Where a demo keeps its data: what it was told, or a new directory under ./build."""

from __future__ import annotations

import errno
import os
import tempfile

BUILD = "build"


def make_place(directory: str | None) -> str:
    """The directory of a demo, made if it is missing. An error says that another one may be named."""
    above = directory or BUILD
    try:
        os.makedirs(above, exist_ok=True)
        if not os.access(above, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), above)
        return directory or tempfile.mkdtemp(prefix="demo-", dir=above)
    except OSError as error:
        error.filename = os.path.abspath(above)
        error.add_note("Name a directory that may be written: --dir DIR.")
        raise
