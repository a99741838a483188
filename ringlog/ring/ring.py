"""The ring facade: make a ring over memory, then attach one writer and one reader to it.

Who owns the bytes. The ring's memory belongs to whoever made it (usually a `SharedMemory`). A handle keeps
the memory from being unmapped until it is closed. The body of a claim belongs to the writer until `commit`
or `abort`; the body of a message belongs to the reader until `release`. The memoryviews that are handed out
die at exactly those points: using one later raises ValueError. A slice or an array made *from* such a view
is beyond that guard, and after the release shows whatever the peer writes there next: copy what must live on.

A generation has one writer and one reader in its life. When either dies, the ring's owner retires the
generation and makes a new one, in new memory; nobody repairs a ring. A handle is used by one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringlog.errors import InvalidRequest
from ringlog.limits import RING_DRAIN_BYTES_MAX, RING_READ_MESSAGES_MAX
from ringlog.native import _kernel
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.drain import DRAIN_GROUP, DRAIN_ROW, DRAIN_ROW_STRUCT, DrainTable

if TYPE_CHECKING:
    from typing_extensions import Buffer


def ring_bytes(capacity_bytes: int) -> int:
    """Memory that a ring of this capacity needs.

    >>> ring_bytes(4096)
    4608
    """
    return int(_kernel.RING_HEADER_BYTES) + capacity_bytes


class Message(NamedTuple):
    """One message in place; `body` dies at `RingReader.release`."""

    kind: int
    body: memoryview


class Ring:
    """One generation of a ring, over any writable buffer that is aligned to 8 bytes.

    >>> ring = Ring.create(bytearray(ring_bytes(4096)), capacity_bytes=4096)
    >>> writer, reader = ring.writer(), ring.reader()
    >>> writer.write(b"hello", kind=7)
    True
    >>> [(message.kind, bytes(message.body)) for message in reader.read_all()]
    [(7, b'hello')]
    >>> reader.release()
    """

    def __init__(self, memory: Buffer, capacity_bytes: int, generation: int) -> None:
        """Name a ring that exists; `create` and `open` do."""
        self.memory = memory
        self.capacity_bytes = capacity_bytes
        self.generation = generation

    @classmethod
    def create(cls, memory: Buffer, *, capacity_bytes: int, generation: int = 1) -> Ring:
        """Make an empty ring. Only in memory that no living handle is bound to."""
        _kernel.ring_format(memory, capacity_bytes, generation)
        return cls(memory, capacity_bytes, generation)

    @classmethod
    def open(cls, memory: Buffer, *, generation: int) -> Ring:
        """The ring that another process made. RingStale when the memory holds another generation."""
        return cls(memory, _kernel.ring_capacity(memory, generation), generation)

    def writer(self, doorbell: Doorbell | None = None) -> RingWriter:
        """Attach the generation's only writer. RingTaken when it has, or had, one."""
        return RingWriter(self.memory, self.generation, doorbell)

    def reader(self, doorbell: Doorbell | None = None) -> RingReader:
        """Attach the generation's only reader. RingTaken when it has, or had, one."""
        return RingReader(self.memory, self.generation, doorbell)

    def retire(self) -> None:
        """End the generation: each of its handles raises RingStale from its next call on."""
        _kernel.ring_retire(self.memory, self.generation)


class RingWriter:
    """The producer's handle. What it publishes rings the doorbell of a reader that sleeps."""

    def __init__(self, memory: Buffer, generation: int, doorbell: Doorbell | None = None) -> None:
        """Attach to a generation; see `Ring.writer`."""
        self._native = _kernel.RingWriter(memory, generation, -1 if doorbell is None else doorbell.fd)
        self._memory = memoryview(memory).cast("B")
        self._claim: memoryview | None = None
        self.capacity_bytes = self._native.capacity
        self.body_bytes_max: int = _kernel.ring_body_bytes_max(self.capacity_bytes)
        """A quarter of the ring, less the message's header."""

    def write(self, data: Buffer, kind: int = 0, *, wakes: bool = True) -> bool:
        """Publish one message. False when the ring is full: try again when the reader has released. A reader that
        sleeps is left asleep unless the message `wakes` it: it reads it when something else does."""
        return self._native.write(data, kind, wakes)

    def write_many(self, offsets: NDArray[np.int64], data: Buffer, kind: int = 0) -> int:
        """Publish messages `data[offsets[i]:offsets[i + 1]]` in order; how many fitted.

        InvalidRequest, and nothing is published, when the offsets do not ascend within the data or a message
        could never fit.

        >>> ring = Ring.create(bytearray(ring_bytes(4096)), capacity_bytes=4096)
        >>> ring.writer().write_many(np.array([0, 2, 2, 5]), b"abcde")
        3
        >>> [bytes(message.body) for message in ring.reader().read_all()]
        [b'ab', b'', b'cde']
        """
        return self._native.write_many(offsets, data, kind)

    def claim(self, body_bytes: int) -> memoryview | None:
        """Room for one message, to be filled in place, then `commit` or `abort`. None when the ring is full.

        One claim at a time. The view dies with the commit or abort.
        """
        offset = self._native.claim(body_bytes)
        if offset is None:
            return None
        self._claim = self._memory[offset : offset + body_bytes]
        return self._claim

    def commit(self, kind: int = 0) -> None:
        """Publish the claimed message. BufferError, and the claim stays, while its view is lent to a call."""
        self._drop_claim()
        self._native.commit(kind)

    def abort(self) -> None:
        """Give up the claim. The reader never learns of it."""
        self._drop_claim()
        self._native.abort()

    def used_bytes(self) -> int:
        """Bytes that the reader has not released yet, headers and padding included."""
        return self._native.used_bytes()

    def close(self) -> None:
        """Nothing more follows: the reader sees `ended` once it has read everything. Idempotent."""
        self._drop_claim()
        self._native.close()
        self._memory.release()

    def _drop_claim(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None


class RingReader:
    """The consumer's handle."""

    def __init__(self, memory: Buffer, generation: int, doorbell: Doorbell | None = None) -> None:
        """Attach to a generation; see `Ring.reader`."""
        self._native = _kernel.RingReader(memory, generation)
        self._doorbell = doorbell
        self.memory = memoryview(memory).cast("B")
        """The whole ring: positions in a drained table count from its start."""
        self._views: list[memoryview] = []
        self.capacity_bytes = self._native.capacity
        # The native calls themselves: every process makes them for each of its rings in each of its passes.
        self.announce_wait: Callable[[], bool] = self._native.announce_wait
        """Tell the writer that this side goes to sleep. True: nothing is there, sleep until the doorbell is
        readable, then call `end_wait`. False: do not sleep, look again."""
        self.withdraw_wait: Callable[[], None] = self._native.withdraw_wait
        """After a sleep on a doorbell that several rings share: its owner clears it once for all."""

    def read_all(self, messages_max: int = RING_READ_MESSAGES_MAX) -> list[Message]:
        """Messages published and not yet read, in place, oldest first. `release()` gives them back.

        RingCorrupt when the memory is damaged; what lies whole before the damage is returned first.
        """
        found = self._native.walk(messages_max)
        if not found:
            return []
        memory = self.memory
        messages = [Message(kind, memory[offset : offset + body_bytes]) for kind, offset, body_bytes in found]
        self._views += [message.body for message in messages]
        return messages

    def drain(
        self, messages_max: int = RING_READ_MESSAGES_MAX, bytes_max: int = RING_DRAIN_BYTES_MAX
    ) -> DrainTable:
        """Walk, check and group the frames published and not yet read, in one native call without the GIL.

        Stops at `messages_max` frames, or once `bytes_max` bytes were walked. Bad frames are rows with a
        status. Errors as in `read_all`; `release()` gives the frames back.

        >>> from ringlog.ring.frame import frame_header
        >>> ring = Ring.create(bytearray(ring_bytes(4096)), capacity_bytes=4096)
        >>> writer, reader = ring.writer(), ring.reader()
        >>> for partition in (5, 3, 5):
        ...     body = b"for %d" % partition
        ...     header = frame_header(api_key=9, partition=partition, correlation=1, body_bytes=len(body))
        ...     assert writer.write(header + body)
        >>> table = reader.drain()
        >>> table.groups.tolist()
        [(3, 0, 1), (5, 1, 2)]
        >>> at, size = table.rows[0]["body_position"], table.rows[0]["body_bytes"]
        >>> bytes(reader.memory[at : at + size])
        b'for 3'
        """
        rows, groups = self._native.drain(messages_max, bytes_max)
        return DrainTable(np.frombuffer(rows, dtype=DRAIN_ROW), np.frombuffer(groups, dtype=DRAIN_GROUP))

    def drain_rows(
        self, messages_max: int = RING_READ_MESSAGES_MAX, bytes_max: int = RING_DRAIN_BYTES_MAX
    ) -> list[tuple[int, ...]]:
        """As `drain`, the rows alone, as plain numbers in the order of DRAIN_ROW: a few cost a third of a table."""
        rows, _ = self._native.drain(messages_max, bytes_max)
        return list(DRAIN_ROW_STRUCT.iter_unpack(rows)) if rows else []

    def release(self) -> None:
        """Give everything that was read back to the writer; all views of it die.

        BufferError, and nothing is given back, while one of them is lent to a call that still runs.
        """
        if self._views:
            for view in self._views:
                view.release()
            self._views.clear()
        self._native.release()

    @property
    def ended(self) -> bool:
        """The writer closed, and a read has seen all that it wrote."""
        return self._native.ended

    def end_wait(self) -> None:
        """After a sleep, whatever ended it: withdraw the announcement and clear the doorbell."""
        self.withdraw_wait()
        self._bell.clear()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until there may be something to read; False when the time was up first.

        For loops with nothing else to wait for; others use `announce_wait` with their own poller.
        """
        if not self.announce_wait():
            return True
        woken = self._bell.wait(timeout_s)
        self.end_wait()
        return woken

    def close(self) -> None:
        """Stop reading: the writer's next call raises RingClosed. Idempotent; views die as in `release`."""
        for view in self._views:
            view.release()
        self._views.clear()
        self._native.close()
        self.memory.release()

    @property
    def _bell(self) -> Doorbell:
        if self._doorbell is None:
            raise InvalidRequest("this reader was attached without a doorbell")
        return self._doorbell
