"""A link: two rings in one shared segment, one each way, between two processes of a node.

The `front` end is a network process or the controller, the `back` end the process that serves it. An end never
blocks: what does not fit the ring waits in its outbox and goes out first when there is room again.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from typing import Literal

from ringlog.ring.doorbell import Doorbell
from ringlog.ring.ring import Ring, RingReader, RingWriter, ring_bytes
from ringlog.ring.shm import SharedMemory

Side = Literal["front", "back"]


def create_link(label: str, *, request_bytes: int, reply_bytes: int, generation: int) -> SharedMemory:
    """Shared memory with both rings made; its maker keeps it, or closes it once both ends have opened it."""
    memory = SharedMemory.create(label, ring_bytes(request_bytes) + ring_bytes(reply_bytes))
    whole = memoryview(memory.memory)
    with whole[: ring_bytes(request_bytes)] as first, whole[ring_bytes(request_bytes) :] as second:
        Ring.create(first, capacity_bytes=request_bytes, generation=generation)
        Ring.create(second, capacity_bytes=reply_bytes, generation=generation)
    whole.release()
    return memory


class LinkEnd:
    """One process's end of a link."""

    def __init__(
        self, name: str, generation: int, side: Side, *, request_bytes: int, peer_bell: Doorbell
    ) -> None:
        self.generation = generation
        self._shm = SharedMemory.open(name)
        self._whole = memoryview(self._shm.memory)
        requests = self._whole[: ring_bytes(request_bytes)]
        replies = self._whole[ring_bytes(request_bytes) :]
        self._views = (requests, replies)
        with ExitStack() as undo:
            undo.callback(
                self._unmap
            )  # a link that was made anew while we looked is not kept mapped and locked
            request_ring = Ring.open(requests, generation=generation)
            reply_ring = Ring.open(replies, generation=generation)
            own, other = (request_ring, reply_ring) if side == "front" else (reply_ring, request_ring)
            self.writer: RingWriter = own.writer(peer_bell)
            undo.callback(self.writer.close)
            self.reader: RingReader = other.reader()
            undo.pop_all()
        self._outbox: deque[bytes] = deque()
        self.outbox_bytes = 0
        self.closed = False

    def send(self, frame: bytes, *, wakes: bool = True) -> None:
        """Publish a frame, now or as soon as there is room. Frames arrive in the order in which they were sent. What
        need not `wake` a sleeping reader is read when something else does.

        After `close` nobody is at the other end, and nothing is sent."""
        if self.closed:
            return
        if self._outbox or not self.writer.write(frame, wakes=wakes):
            self._outbox.append(frame)
            self.outbox_bytes += len(frame)

    def pump(self) -> bool:
        """Send what waits; False while something still does."""
        while self._outbox:
            if not self.writer.write(self._outbox[0]):
                return False
            self.outbox_bytes -= len(self._outbox.popleft())
        return True

    def close(self) -> None:
        """Leave the link and unmap it. Its views of messages die."""
        self.closed = True
        self.reader.close()
        self.writer.close()
        self._unmap()

    def _unmap(self) -> None:
        for view in self._views:
            view.release()
        self._whole.release()
        self._shm.close()
