"""What can be asked and done about the descriptors behind ZeroMQ's sockets: it owns them, and says which they are."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from ringlog.limits import MIB

UNIX_SEND_BUFFER_BYTES = 2 * MIB
_BYTES_RECEIVED_AT = 128  # tcpi_bytes_received in struct tcp_info, since Linux 4.1


def received_bytes(fd: int) -> int | None:
    """How much a TCP connection has received since it began; None for any other descriptor."""
    try:
        with _borrowed(fd) as found:
            info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return None
    if len(info) < _BYTES_RECEIVED_AT + 8:
        return None
    received: int = struct.unpack_from("<Q", info, _BYTES_RECEIVED_AT)[0]
    return received


def peer_process(fd: int) -> int | None:
    """The process at the other end of an ipc:// connection; None for any other descriptor."""
    try:
        with _borrowed(fd) as found:
            if found.family != socket.AF_UNIX:
                return None
            credentials = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except OSError:
        return None
    pid: int = struct.unpack("<iii", credentials)[0]
    return pid if pid > 0 else None


def cut(fd: int) -> None:
    """End a connection; the library finds it closed, and forgets it with all that it kept of it."""
    try:
        with _borrowed(fd) as found:
            found.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # its peer was faster


def widen(fd: int) -> None:
    """Let an ipc:// connection hold whole frames on their way; leave any other descriptor alone.

    ZeroMQ keeps the system's default of 208 KiB, which one batch fills three times over: each time both sides fall
    asleep and are woken. Where the system allows less (`net.core.wmem_max`), it is that much.
    """
    try:
        with _borrowed(fd) as found:
            if found.family == socket.AF_UNIX:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_SEND_BUFFER_BYTES)
    except OSError:
        return  # it was closed meanwhile


@contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """A socket object around a descriptor that stays its owner's."""
    if fd < 0:
        raise OSError(errno.EBADF, "no descriptor")
    found = socket.socket(fileno=fd)
    try:
        yield found
    finally:
        found.detach()
