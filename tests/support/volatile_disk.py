"""A file system on a disk that forgets what was not flushed when its power is lost: ext4 on a `volatile_device`.

What is lost is what the kernel and the device had not made durable: bytes, lengths and names, whoever wrote them and by
whatever call. Root alone may mount it, and FUSE and loop devices must be there; `why_not` says what is missing.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from tests.support.node import wait_for
from tests.support.patience import stretched

IMAGE_BYTES = 512 << 20
UNMOUNTED_WITHIN_S = 10.0
_MAKE = ["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-N", "4096"]
_NOW = ["-E", "lazy_itable_init=0,lazy_journal_init=0"]
"""Nothing is left to be written in the background."""


def why_not() -> str:
    """What keeps this machine from having such disks; empty when nothing does."""
    if os.geteuid() != 0:
        return "only root may mount a file system"
    missing = [path for path in ("/dev/fuse", "/dev/loop-control") if not os.path.exists(path)]
    return f"there is no {' and no '.join(missing)}" if missing else ""


class VolatileDisk:
    """Mounted at `path`, with the power on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._image, self._device = Path(f"{path}.image"), Path(f"{path}.device")
        path.mkdir()
        self._device.touch()
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _must([*_MAKE, *_NOW, str(self._image)])
        # In a session of its own: whoever ends the test's processes ends this one last, by closing its input.
        self._server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.volatile_device",
                self._device,
                self._image,
                str(IMAGE_BYTES),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._hear() == "mounted", "the device did not start"
        self._mount()
        (path / "lost+found").rmdir()

    def lose_power(self, chance: random.Random) -> tuple[int, int]:
        """After the processes that use it were killed: what was not flushed is gone, but for a part that chance leaves.
        Returns how many sectors were not flushed, and how many of these survived."""
        unflushed, survived = self._ask(f"off {chance.random()}").split()
        self._unmount()
        assert self._ask("on") == "on"
        self._mount()
        return int(unflushed), int(survived)

    def close(self) -> None:
        self._unmount()
        self._server.communicate()
        self._image.unlink()

    def _mount(self) -> None:
        _must(["mount", "-o", "loop", str(self._device), str(self.path)])

    def _unmount(self) -> None:
        """The kernel closes the files of processes that were killed a moment after these are gone."""
        wait_for(f"the end of all files on {self.path}", self._try_unmount, stretched(UNMOUNTED_WITHIN_S))

    def _try_unmount(self) -> bool:
        done = subprocess.run(["umount", str(self.path)], capture_output=True, check=False)
        assert done.returncode == 0 or b"busy" in done.stderr, done.stderr.decode(errors="replace")
        return done.returncode == 0

    def _ask(self, words: str) -> str:
        assert self._server.stdin is not None
        self._server.stdin.write(f"{words}\n".encode())
        self._server.stdin.flush()
        return self._hear()

    def _hear(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline().decode().strip()


def _must(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.decode(errors='replace').strip()}"
