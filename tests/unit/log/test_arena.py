"""Promises of the buffer memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import InvariantBroken
from ringlog.limits import BLOCK_BYTES, KIB, MIB
from ringlog.log.arena import Arena


def arena(slabs=4):
    return Arena(memoryview(bytearray(slabs * MIB)))


def test_a_chunk_returns_when_its_last_holder_lets_go():
    memory = arena()
    chunk = memory.take(1000)
    chunk.retain()
    chunk.release()
    assert memory.free_bytes < memory.total_bytes
    chunk.release()
    assert memory.free_bytes == memory.total_bytes
    with pytest.raises(InvariantBroken):
        chunk.release()


def test_no_room_is_an_answer_and_not_an_error():
    memory = arena(1)
    held = [memory.take(16 * KIB) for _ in range(64)]
    assert memory.take(1) is None
    held.pop().release()
    assert memory.take(1) is not None


def test_a_large_chunk_is_contiguous_over_slabs():
    memory = arena(4)
    first = memory.take(1 * MIB)
    large = memory.take(3 * MIB)
    assert large.nbytes == 3 * MIB
    assert memory.take(2 * MIB) is None
    first.release()
    assert memory.take(2 * MIB) is None
    large.release()
    assert memory.take(4 * MIB) is not None


def test_warming_up_touches_only_memory_that_nobody_holds():
    memory = arena(8)
    held = [memory.take(1 * MIB) for _ in range(3)]
    for chunk in held:
        chunk.view[:] = b"x" * MIB
    for _ in range(10):
        memory.warm_up()
    assert all(bytes(chunk.view) == b"x" * MIB for chunk in held)


def test_an_arena_that_is_not_whole_slabs_is_refused():
    with pytest.raises(InvariantBroken):
        Arena(memoryview(bytearray(MIB + 1)))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3 * MIB)), max_size=120))
def test_chunks_never_overlap_and_are_aligned_and_all_come_back(steps):
    memory, held = arena(8), []
    for take, size in steps:
        if take or not held:
            chunk = memory.take(size)
            if chunk is None:
                continue
            assert chunk.nbytes >= size and chunk.position % BLOCK_BYTES == 0
            taken = range(chunk.position, chunk.position + chunk.nbytes)
            assert all(taken.stop <= c.position or c.position + c.nbytes <= taken.start for c in held)
            held.append(chunk)
        else:
            held.pop(size % len(held)).release()
        assert memory.free_bytes == memory.total_bytes - sum(c.nbytes for c in held)
    for chunk in held:
        chunk.release()
    assert memory.free_bytes == memory.total_bytes
    assert memory.take(8 * MIB) is not None
