"""A small file system of its own, to be filled up: an ext4 in a file for root, a tmpfs of a user namespace for others.

Who may not mount has the test run once more by a child in namespaces of its own, in which that is allowed.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_IN_NAMESPACE = "RINGLOG_TEST_NAMESPACE"
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def on_a_small_disk(test: Callable[..., None]) -> Callable[..., None]:
    """For tests that use `small_disk`: has them run where that can be mounted."""

    @functools.wraps(test)
    def run(*arguments: object, **named: object) -> None:
        if os.geteuid() == 0:
            test(*arguments, **named)
        else:
            run_in_namespace(os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0])

    return run


def run_in_namespace(test_id: str) -> None:
    """Run one test in a namespace in which a tmpfs can be mounted; fails with what is missing."""
    probe = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.fail(
            "a small disk must be mounted: run the tests as root, or allow user namespaces "
            f"(sysctl kernel.unprivileged_userns_clone=1): {probe.stderr.decode().strip()}"
        )
    command = [
        *NAMESPACE,
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        test_id,
    ]
    done = subprocess.run(command, env={**os.environ, _IN_NAMESPACE: "1"}, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()[-4000:]


@contextmanager
def small_disk(directory: Path, size_mib: int) -> Iterator[Path]:
    """A file system of that size, mounted below `directory`. The test must be marked `on_a_small_disk`."""
    image, mounted = directory / "disk.img", directory / "disk"
    mounted.mkdir()
    if os.environ.get(_IN_NAMESPACE):
        _must(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(mounted)])
    else:
        with image.open("wb") as file:
            file.truncate(size_mib << 20)
        _must(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)])
        _must(["mount", "-o", "loop", str(image), str(mounted)])
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)
        image.unlink(missing_ok=True)


def _must(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.fail(
            f"a small disk is needed, and `{' '.join(command)}` failed: {done.stderr.decode().strip()}"
        )


class Ballast:
    """A file that takes the room."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk
        self._path = disk / "ballast"

    def leave(self, free_bytes: int) -> None:
        """Take all the room but so much."""
        take = self._free_bytes() - free_bytes
        with self._path.open("ab") as file:
            end = file.tell()
            os.posix_fallocate(file.fileno(), end, max(take, 1))

    def fill(self, pause_s: float = 0.0) -> None:
        """Take all the room, to the last block: at once, or piece by piece as a program does that writes."""
        with self._path.open("ab") as file:
            for step in (1 << 20, 1 << 16, 1 << 12):
                while self._takes(file.fileno(), step):
                    time.sleep(pause_s)

    @staticmethod
    def _takes(fd: int, nbytes: int) -> bool:
        try:
            os.posix_fallocate(fd, os.fstat(fd).st_size, nbytes)
        except OSError:
            return False
        return True

    def drop(self) -> None:
        """Give all the room back."""
        self._path.unlink()

    def _free_bytes(self) -> int:
        found = os.statvfs(self._disk)
        return found.f_bavail * found.f_frsize
