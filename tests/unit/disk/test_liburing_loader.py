"""The liburing package is imported without a trace on disk: installed packages are often not ours to write to."""

import subprocess
import sys

_REFUSED = """
import os, sys

def refuse(event, arguments):
    if event in ("os.remove", "os.mkdir", "os.rename") and "liburing" in str(arguments[0]):
        raise PermissionError(13, "read-only", arguments[0])
    if event == "open" and "liburing" in str(arguments[0]) and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
        raise PermissionError(13, "read-only", arguments[0])

sys.addaudithook(refuse)
"""


def run(code: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-B", "-c", _REFUSED + code], capture_output=True, text=True, timeout=60
    )


def test_io_uring_serves_where_the_package_cannot_be_written_to():
    ran = run(
        "from ringlog.disk.choose import open_disk\ndisk = open_disk('io_uring')\nprint(disk.name)\ndisk.shutdown()"
    )
    assert (ran.stdout.strip(), ran.returncode) == ("io_uring", 0), ran.stderr


def test_names_that_the_package_does_not_have_are_missing_and_not_none():
    ran = run(
        "from ringlog.disk.liburing_loader import load_liburing\nload_liburing()\nimport liburing\n"
        "print(hasattr(liburing, 'io_uring'), hasattr(liburing, 'no_such_name'), 'dynamic_import' in sys.modules)"
    )
    assert ran.stdout.split() == ["True", "False", "False"], ran.stderr
