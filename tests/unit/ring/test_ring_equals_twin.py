"""The native ring and its twin: the same bytes in memory and the same answers, whatever the calls."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ringlog.errors import InvalidRequest, RinglogError
from ringlog.native import _kernel
from ringlog.ring.ring import Ring, RingReader, ring_bytes
from tests.support.twins import ring as twin

CAPACITY = 4096
BODY_MAX = CAPACITY // 4 - 8

# Small ones, ones around the largest, and one too large.
sizes = st.one_of(st.integers(0, 64), st.integers(BODY_MAX - 16, BODY_MAX + 1), st.integers(0, BODY_MAX))
bodies = st.builds(
    lambda size, seed: bytes((seed + i) & 0xFF for i in range(size)), sizes, st.integers(0, 255)
)
kinds = st.sampled_from([0, 1, 2**32 - 2, 2**32 - 1])


def outcome(call, *arguments):
    """The result of a call, or the type of the error it raised."""
    try:
        return call(*arguments)
    except RinglogError as error:
        return type(error)


class RingsAgree(RuleBasedStateMachine):
    """One ring of each, driven alike."""

    def __init__(self) -> None:
        super().__init__()
        self.native_memory = bytearray(ring_bytes(CAPACITY))
        self.twin_memory = bytearray(ring_bytes(CAPACITY))
        ring = Ring.create(self.native_memory, capacity_bytes=CAPACITY, generation=3)
        twin.create(self.twin_memory, CAPACITY, 3)
        self.writer, self.reader = ring.writer(), ring.reader()
        self.native_reader = self.reader._native
        self.twin_writer, self.twin_reader = (
            twin.Writer(self.twin_memory, 3),
            twin.Reader(self.twin_memory, 3),
        )
        self.claim: memoryview | None = None
        self.sent: list[tuple[int, bytes]] = []
        self.closed = False

    @precondition(lambda self: not self.closed)
    @rule(body=bodies, kind=kinds)
    def write(self, body: bytes, kind: int) -> None:
        result = outcome(self.writer.write, body, kind)
        assert result == outcome(self.twin_writer.write, body, kind)
        if result is True:
            self.sent.append((kind, body))

    @precondition(lambda self: not self.closed)
    @rule(many=st.lists(bodies, max_size=40), kind=kinds)
    def write_many(self, many: list[bytes], kind: int) -> None:
        offsets = np.cumsum([0, *map(len, many)])
        result = outcome(self.writer.write_many, offsets, b"".join(many), kind)
        assert result == outcome(self.twin_writer.write_many, many, kind)
        if isinstance(result, int):
            self.sent += [(kind, body) for body in many[:result]]

    @precondition(lambda self: not self.closed)
    @rule(size=sizes)
    def claim_room(self, size: int) -> None:
        view = outcome(self.writer.claim, size)
        offset = outcome(self.twin_writer.claim, size)
        if isinstance(view, memoryview):
            self.claim = view
            view[:] = filler = bytes(i & 0xFF for i in range(size))
            self.twin_memory[offset : offset + size] = filler
        else:
            assert view == offset

    @precondition(lambda self: not self.closed)
    @rule(kind=kinds)
    def commit(self, kind: int) -> None:
        body = None if self.claim is None else bytes(self.claim)
        refused = self.claim is None or kind == twin.KIND_PADDING
        if self.claim is not None and refused:
            return  # the facade drops its view first; the native refusal is tested by itself
        assert outcome(self.writer.commit, kind) == outcome(self.twin_writer.commit, kind)
        if body is not None:
            self.sent.append((kind, body))
        self.claim = None

    @precondition(lambda self: not self.closed)
    @rule()
    def abort(self) -> None:
        assert outcome(self.writer.abort) == outcome(self.twin_writer.abort)
        self.claim = None

    @rule(messages_max=st.integers(0, 20))
    def read(self, messages_max: int) -> None:
        found = self.native_reader.walk(messages_max)
        assert found == self.twin_reader.walk(messages_max)
        got = [(kind, bytes(self.native_memory[at : at + size])) for kind, at, size in found]
        assert got == self.sent[: len(got)]
        del self.sent[: len(got)]

    @rule()
    def release(self) -> None:
        self.reader.release()
        self.twin_reader.release()

    @rule()
    def close_writer(self) -> None:
        if not self.closed and not self.sent:
            self.writer.close()
            self.twin_writer.close()
            self.closed = True
            self.read(1)
            assert self.reader.ended and self.twin_reader.ended

    @invariant()
    def same_bytes(self) -> None:
        assert self.native_memory == self.twin_memory

    @invariant()
    def same_use(self) -> None:
        if not self.closed:
            assert self.writer.used_bytes() == self.twin_writer.used_bytes()


RingsAgree.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_native_and_twin_do_the_same = RingsAgree.TestCase


@settings(max_examples=300, deadline=None)
@given(
    words=st.lists(
        st.tuples(
            st.integers(0, 30), st.sampled_from([0, 1, 7, 8, 9, 24, 1023, 1024, 1025, 4096, 2**31, 2**32 - 1])
        ),
        max_size=6,
    ),
    padding_at=st.lists(st.integers(0, 30), max_size=2),
    producer_words=st.integers(0, 511),
)
def test_a_damaged_ring_is_refused_at_the_same_message(words, padding_at, producer_words) -> None:
    memory = bytearray(ring_bytes(CAPACITY))
    Ring.create(memory, capacity_bytes=CAPACITY)
    view = twin.Memory(memory)
    for slot in range(31):
        view.put_u64(twin.HEADER_BYTES + 8 * slot, 8)  # empty messages, one after the other
    for slot, length in words:
        view.put_u32(twin.HEADER_BYTES + 8 * slot, length)
    for slot in padding_at:
        view.put_u32(twin.HEADER_BYTES + 8 * slot + 4, twin.KIND_PADDING)
    view.put_u64(twin.PRODUCER_POSITION, 8 * producer_words)
    copy = bytearray(memory)
    native, slow = RingReader(memory, 1), twin.Reader(copy, 1)
    for _ in range(3):
        assert outcome(native._native.walk, 100) == outcome(slow.walk, 100)


def test_the_padding_kind_cannot_be_sent() -> None:
    writer = _kernel.RingWriter(formatted(), 1)
    assert outcome(writer.write, b"x", _kernel.RING_KIND_PADDING) is InvalidRequest
    assert writer.claim(3) is not None
    assert outcome(writer.commit, _kernel.RING_KIND_PADDING) is InvalidRequest
    writer.commit(5)
    assert writer.used_bytes() == 16


def formatted() -> bytearray:
    memory = bytearray(ring_bytes(CAPACITY))
    _kernel.ring_format(memory, CAPACITY, 1)
    return memory
