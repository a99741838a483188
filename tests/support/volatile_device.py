"""A disk with a volatile cache, as a file: what was written and not flushed is lost with the power, all or some of it.

    python -m tests.support.volatile_device MOUNT_POINT IMAGE BYTES

mounts itself (FUSE, spoken to by hand: one file, few calls) over the plain file MOUNT_POINT. Writes are kept in memory;
a flush puts them into IMAGE. On standard input `off SEED` is the loss of power: of the sectors that were not flushed a
part survives, as chance has it, and nothing that is written from then on; `on` is its return. Each is answered by a
line. It ends when its standard input does.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import random
import select
import stat
import struct
import sys

SECTOR_BYTES = 512
"""What a device writes whole or not at all."""
WRITE_BYTES_MAX = 128 << 10
_HEAD = struct.Struct("<IIQQIIII")  # length, call, unique, node, uid, gid, pid, -
_REPLY = struct.Struct("<IiQ")
_PLACE = struct.Struct("<QQI")  # handle, offset, size: how the bodies of reads and writes begin
_PLACE_BYTES = 40
_GETATTR, _SETATTR, _OPEN, _READ, _WRITE, _STATFS, _RELEASE = 3, 4, 14, 15, 16, 17, 18
_FSYNC, _FLUSH, _INIT, _ACCESS, _DESTROY = 20, 25, 26, 34, 38
_SILENT = (2, 36, 42)  # forget, interrupt, forget many: nobody waits for an answer
_BIG_WRITES = 1 << 5
_DIRECT = 1 << 0
_MS_NOSUID, _MS_NODEV, _MNT_DETACH = 2, 4, 2


class VolatileImage:
    """The content: what is durable, and above it what is not yet."""

    def __init__(self, path: str, nbytes: int) -> None:
        self.nbytes = nbytes
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, nbytes)
        self._volatile: dict[int, bytes] = {}
        """By the number of a sector: what it will hold when it is flushed."""
        self._is_off = False

    def write(self, offset: int, data: bytes) -> None:
        """Whole sectors: that is how a block device is written."""
        assert offset % SECTOR_BYTES == 0 and len(data) % SECTOR_BYTES == 0, "sectors are written whole"
        if not self._is_off:
            for at in range(0, len(data), SECTOR_BYTES):
                self._volatile[(offset + at) // SECTOR_BYTES] = data[at : at + SECTOR_BYTES]

    def read(self, offset: int, nbytes: int) -> bytes:
        found = bytearray(os.pread(self._fd, nbytes, offset))
        if self._volatile:
            first = offset // SECTOR_BYTES
            for sector in range(first, (offset + len(found) - 1) // SECTOR_BYTES + 1):
                fresh = self._volatile.get(sector)
                if fresh is not None:
                    at = sector * SECTOR_BYTES - offset
                    low, high = max(at, 0), min(at + SECTOR_BYTES, len(found))
                    found[low:high] = fresh[low - at : high - at]
        return bytes(found)

    def flush(self) -> None:
        """What was written so far survives the loss of power from now on."""
        for sector, data in self._volatile.items():
            os.pwrite(self._fd, data, sector * SECTOR_BYTES)
        self._volatile.clear()

    def off(self, chance: random.Random) -> tuple[int, int]:
        """The power is lost: sectors that were not flushed, and how many of these survived."""
        unflushed = list(self._volatile)
        share = chance.choice((0.0, 0.0, 0.5, 0.9))
        for sector in unflushed:
            if chance.random() >= share:
                del self._volatile[sector]
        survived = len(self._volatile)
        self.flush()
        self._is_off = True
        return len(unflushed), survived

    def on(self) -> None:
        self._is_off = False


class VolatileDevice:
    """Answers the kernel's calls for the one file."""

    def __init__(self, mount_point: str, image: VolatileImage) -> None:
        self._image = image
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.fd},rootmode={stat.S_IFREG:o},user_id=0,group_id=0"
        _check(
            _libc().mount(
                b"volatile", mount_point.encode(), b"fuse", _MS_NOSUID | _MS_NODEV, options.encode()
            )
        )

    def serve(self) -> bool:
        """Answer one call; False when the kernel has let go of the file."""
        try:
            request = os.read(self.fd, WRITE_BYTES_MAX + 4096)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                return True  # it was taken back
            if error.errno == errno.ENODEV:
                return False
            raise
        _, call, unique, *_ = _HEAD.unpack_from(request)
        if call in _SILENT:
            return True
        try:
            body, failure = self._answer(call, memoryview(request)[_HEAD.size :]), 0
        except OSError as error:
            body, failure = b"", -(error.errno or errno.EIO)
        os.write(self.fd, _REPLY.pack(_REPLY.size + len(body), failure, unique) + body)
        return call != _DESTROY

    def _answer(self, call: int, body: memoryview) -> bytes:
        image = self._image
        if call == _WRITE:
            _, offset, size = _PLACE.unpack_from(body)
            image.write(offset, bytes(body[_PLACE_BYTES : _PLACE_BYTES + size]))
            return struct.pack("<II", size, 0)
        if call == _READ:
            _, offset, size = _PLACE.unpack_from(body)
            return image.read(offset, size)
        if call == _FSYNC:
            image.flush()
            return b""
        if call in (_GETATTR, _SETATTR):
            return struct.pack("<QII", 1, 0, 0) + self._attributes()
        if call == _OPEN:
            return struct.pack("<QIi", 0, _DIRECT, 0)
        if call == _STATFS:
            return struct.pack("<5Q4I24x", image.nbytes // 4096, 0, 0, 1, 0, 4096, 255, 4096, 0)
        if call == _INIT:
            major, minor, ahead, _ = struct.unpack_from("<4I", body)
            assert major == 7, f"FUSE {major}.{minor}"
            return struct.pack(
                "<4I2HII2H8I", 7, 31, ahead, _BIG_WRITES, 16, 12, WRITE_BYTES_MAX, 1, 32, *[0] * 9
            )
        if call in (_RELEASE, _FLUSH, _ACCESS, _DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "no such call here")

    def _attributes(self) -> bytes:
        size = self._image.nbytes
        mode = stat.S_IFREG | 0o600
        return struct.pack("<6Q10I", 1, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.volatile_device", description=__doc__)
    parser.add_argument("mount_point")
    parser.add_argument("image")
    parser.add_argument("bytes", type=int)
    given = parser.parse_args()
    image = VolatileImage(given.image, given.bytes)
    device = VolatileDevice(given.mount_point, image)
    print("mounted", flush=True)
    try:
        while True:
            readable, _, _ = select.select([device.fd, sys.stdin], [], [])
            if device.fd in readable and not device.serve():
                return
            if sys.stdin in readable:
                words = os.read(0, 4096).decode().split()
                if not words:
                    return
                if words[0] == "off":
                    print(*image.off(random.Random(words[1])), flush=True)
                else:
                    image.on()
                    print("on", flush=True)
    finally:
        _libc().umount2(given.mount_point.encode(), _MNT_DETACH)


if __name__ == "__main__":
    main()
