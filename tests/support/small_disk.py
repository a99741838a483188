"""A small file system of its own in a file, to be filled up. Needs the right to mount; skips the test without it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(directory: Path, size_mib: int) -> Iterator[Path]:
    """An ext4 on a loop device, mounted below `directory`."""
    image, mounted = directory / "disk.img", directory / "disk"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(size_mib << 20)
    if os.geteuid() != 0:
        pytest.skip("mounting a loop file system needs root")
    made = subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no ext4 can be made here: {made.stderr.decode().strip()}")
    done = subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop file system can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)
        image.unlink()


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

    def drop(self) -> None:
        """Give all the room back."""
        self._path.unlink()

    def _free_bytes(self) -> int:
        found = os.statvfs(self._disk)
        return found.f_bavail * found.f_frsize
