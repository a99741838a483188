"""The twin of the ring: the same bytes in memory after the same calls, one step per line, no concurrency."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ringlog.errors import InvalidRequest, RingClosed, RingCorrupt, RingStale, RingTaken

HEADER_BYTES = 512
MAGIC, VERSION, CAPACITY, GENERATION, WRITER_STATE, READER_STATE = 0, 8, 16, 24, 32, 36
PRODUCER_POSITION, CONSUMER_POSITION, READER_WAITS = 128, 256, 384
NEVER_ATTACHED, ATTACHED, CLOSED = 0, 1, 2
KIND_PADDING = 2**32 - 1
WORD = 8


def aligned(count: int) -> int:
    return (count + 7) // 8 * 8


class Memory:
    """Words in a bytearray, by their offset."""

    def __init__(self, buffer: bytearray) -> None:
        self.buffer = buffer

    def u64(self, at: int) -> int:
        return struct.unpack_from("<Q", self.buffer, at)[0]

    def u32(self, at: int) -> int:
        return struct.unpack_from("<I", self.buffer, at)[0]

    def put_u64(self, at: int, value: int) -> None:
        struct.pack_into("<Q", self.buffer, at, value)

    def put_u32(self, at: int, value: int) -> None:
        struct.pack_into("<I", self.buffer, at, value)


def create(buffer: bytearray, capacity: int, generation: int) -> None:
    power_of_two = capacity > 0 and capacity & (capacity - 1) == 0
    if not power_of_two or not 4096 <= capacity <= 2**30 or len(buffer) < HEADER_BYTES + capacity:
        raise InvalidRequest("capacity")
    if generation == 0:
        raise InvalidRequest("generation")
    memory = Memory(buffer)
    buffer[0:8] = b"RLOGRING"
    memory.put_u64(VERSION, 1)
    memory.put_u64(CAPACITY, capacity)
    memory.put_u64(GENERATION, generation)
    memory.put_u64(WRITER_STATE, 0)
    memory.put_u64(PRODUCER_POSITION, 0)
    memory.put_u64(CONSUMER_POSITION, 0)
    memory.put_u32(READER_WAITS, 0)
    memory.put_u64(HEADER_BYTES, 0)


class Side:
    """What writer and reader share."""

    def __init__(self, buffer: bytearray, generation: int, own_state: int) -> None:
        self.memory = Memory(buffer)
        self.generation = generation
        self.capacity = self.memory.u64(CAPACITY)
        self.check_generation()
        if self.memory.u32(own_state) != NEVER_ATTACHED:
            raise RingTaken("taken")
        self.memory.put_u32(own_state, ATTACHED)

    def check_generation(self) -> None:
        if self.memory.u64(GENERATION) != self.generation:
            raise RingStale("stale")

    def offset(self, position: int) -> int:
        return HEADER_BYTES + position % self.capacity

    def to_end(self, position: int) -> int:
        return self.capacity - position % self.capacity

    @property
    def body_bytes_max(self) -> int:
        return self.capacity // 4 - WORD


class Writer(Side):
    def __init__(self, buffer: bytearray, generation: int) -> None:
        super().__init__(buffer, generation, WRITER_STATE)
        self.position = self.memory.u64(PRODUCER_POSITION)
        self.claimed: int | None = None

    def check_usable(self) -> None:
        self.check_generation()
        if self.memory.u32(READER_STATE) == CLOSED:
            raise RingClosed("closed")

    def message_position(self, body_bytes: int) -> int | None:
        """Where the message's header would go; None when the ring is full."""
        if body_bytes > self.body_bytes_max:
            raise InvalidRequest("too large")
        room = aligned(WORD + body_bytes)
        start = self.position
        if room > self.to_end(start):
            start += self.to_end(start)
        if start + room + WORD - self.memory.u64(CONSUMER_POSITION) > self.capacity:
            return None
        return start

    def claim(self, body_bytes: int) -> int | None:
        """Offset of the claimed body."""
        if self.claimed is not None:
            raise InvalidRequest("one claim at a time")
        self.check_usable()
        start = self.message_position(body_bytes)
        if start is None:
            return None
        self.claimed = body_bytes
        return self.offset(start) + WORD

    def commit(self, kind: int) -> None:
        if self.claimed is None or kind == KIND_PADDING:
            raise InvalidRequest("no claim")
        self.check_usable()
        body_bytes, self.claimed = self.claimed, None
        start = self.message_position(body_bytes)
        assert start is not None, "nothing takes room away from a claim"
        self.publish(start, body_bytes, kind)

    def abort(self) -> None:
        if self.claimed is None:
            raise InvalidRequest("no claim")
        self.claimed = None

    def write(self, data: bytes, kind: int = 0) -> bool:
        return self.write_many([data], kind) == 1

    def write_many(self, bodies: Sequence[bytes], kind: int = 0) -> int:
        if any(len(body) > self.body_bytes_max for body in bodies):
            raise InvalidRequest("too large")
        if self.claimed is not None or kind == KIND_PADDING:
            raise InvalidRequest("claimed")
        self.check_usable()
        written = 0
        for body in bodies:
            start = self.message_position(len(body))
            if start is None:
                break
            body_at = self.offset(start) + WORD
            self.memory.buffer[body_at : body_at + len(body)] = body
            self.publish(start, len(body), kind)
            written += 1
        return written

    def publish(self, start: int, body_bytes: int, kind: int) -> None:
        end = start + aligned(WORD + body_bytes)
        self.memory.put_u64(self.offset(end), 0)
        self.memory.put_u64(self.offset(start), kind << 32 | (WORD + body_bytes))
        if start != self.position:
            padding = start - self.position
            self.memory.put_u64(self.offset(self.position), KIND_PADDING << 32 | padding)
        self.memory.put_u64(PRODUCER_POSITION, end)
        self.position = end

    def used_bytes(self) -> int:
        return self.position - self.memory.u64(CONSUMER_POSITION)

    def close(self) -> None:
        self.memory.put_u32(WRITER_STATE, CLOSED)


class Reader(Side):
    def __init__(self, buffer: bytearray, generation: int) -> None:
        super().__init__(buffer, generation, READER_STATE)
        self.released = self.cursor = self.memory.u64(CONSUMER_POSITION)
        self.ended = False

    def walk(self, messages_max: int) -> list[tuple[int, int, int]]:
        """Kind, offset of the body, bytes of the body."""
        found: list[tuple[int, int, int]] = []
        while len(found) < messages_max:
            self.check_generation()
            length, kind = struct.unpack_from("<iI", self.memory.buffer, self.offset(self.cursor))
            if (length, kind) == (0, 0):
                self.ended = self.memory.u32(WRITER_STATE) == CLOSED
                break
            fault = self.fault(length, kind)
            if fault:
                if found:
                    break
                raise RingCorrupt("message", self.offset(self.cursor), fault)
            if kind != KIND_PADDING:
                found.append((kind, self.offset(self.cursor) + WORD, length - WORD))
            self.cursor += aligned(length)
        return found

    def fault(self, length: int, kind: int) -> str:
        if length < WORD:
            return "short"
        if aligned(length) > self.to_end(self.cursor):
            return "beyond the end"
        if self.cursor + aligned(length) > self.memory.u64(PRODUCER_POSITION):
            return "not published"
        if kind == KIND_PADDING:
            return "" if length == self.to_end(self.cursor) else "padding ends early"
        return "" if length - WORD <= self.body_bytes_max else "too long"

    def release(self) -> None:
        self.check_generation()
        self.released = self.cursor
        self.memory.put_u64(CONSUMER_POSITION, self.cursor)

    def close(self) -> None:
        self.memory.put_u32(READER_STATE, CLOSED)
