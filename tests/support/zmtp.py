"""A TCP peer that speaks just enough ZMTP 3.0 to misbehave in it: any frame length, parts without end, silence."""

from __future__ import annotations

import socket
import struct
from types import TracebackType

_GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
_READY = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
MORE, LONG, COMMAND = 1, 2, 4


def frame_head(flags: int, length: int) -> bytes:
    """The head of a ZMTP frame that says it has `length` bytes, whatever follows.

    >>> frame_head(0, 5).hex(), frame_head(0, -1).hex()
    ('0005', '02ffffffffffffffff')
    """
    if 0 <= length < 256:
        return bytes([flags, length])
    return bytes([flags | LONG]) + struct.pack(">Q", length % 2**64)


class ZmtpPeer:
    """One TCP connection to a node."""

    def __init__(self, port: int, *, handshake: bool = True, timeout_s: float = 5.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        # Else each small piece waits 40 ms for the kernel's late acknowledgement of the one before.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if handshake:
            self.send(_GREETING)
            self._receive(64)
            self.send(frame_head(COMMAND, len(_READY)) + _READY)
            self._receive(self._receive(2)[1])

    def send(self, data: bytes) -> bool:
        """Any bytes; False when the node has closed the connection."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def message(self, data: bytes, flags: int = 0) -> bool:
        """One part of a message as it should be."""
        return self.send(frame_head(flags, len(data)) + data)

    def is_closed_by_peer(self, within_s: float = 3.0) -> bool:
        """Whether the node hangs up in time."""
        self.socket.settimeout(within_s)
        try:
            while self.socket.recv(65536):
                continue
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            some = self.socket.recv(count - len(data))
            if not some:
                raise ConnectionError("the node closed the connection during the handshake")
            data += some
        return data

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> ZmtpPeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
