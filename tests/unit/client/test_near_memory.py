"""The memory that a client shares: each place has one user at a time."""

from __future__ import annotations

import gc
import itertools
import os

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ringlog import limits
from ringlog.client.near_memory import (
    BATCH_BYTES_MIN,
    MEMORY_BYTES,
    NearMemory,
    _forks,
    landing_memory,
    near_memory,
)
from ringlog.model import Codec
from ringlog.net.shared_memory import map_shared
from ringlog.records.builder import HEADROOM, cut_columns, seal_for
from ringlog.records.columns import Column

BATCH = 768 * limits.KIB
UNIT = 4 * limits.KIB


def test_what_is_made_in_a_place_is_read_at_its_position():
    near = NearMemory(BATCH)
    shared = map_shared(os.getpid(), near.descriptor, near.nbytes)
    places = [near.take() for _ in range(3)]
    for number, place in enumerate(places):
        place.memory[:4] = b"%04d" % number
    assert [bytes(shared[place.position :][:4]) for place in places] == [b"0000", b"0001", b"0002"]


def test_places_do_not_overlap_and_end_some_time():
    near = NearMemory(BATCH)
    places = []
    while (place := near.take()) is not None:
        places.append(place)
    starts = sorted(place.position for place in places)
    assert len(places) == MEMORY_BYTES // BATCH
    assert min(np.diff(starts)) >= BATCH and starts[-1] + BATCH <= near.nbytes


def test_a_place_is_free_again_when_its_last_view_is_gone_and_the_latest_is_given_first():
    near = NearMemory(BATCH)
    first, second = near.take(), near.take()
    lent = memoryview(second.memory)[100:200]  # as a socket holds it
    at = [first.position, second.position]
    del second
    gc.collect()
    assert near.take().position not in at
    del lent, first
    gc.collect()
    assert near.take().position == at[0]


def test_its_descriptor_is_closed_with_it_and_what_was_made_there_stays():
    near = NearMemory(BATCH)
    place, descriptor = near.take(), near.descriptor
    place.memory[:3] = b"abc"
    del near
    gc.collect()
    assert bytes(place.memory[:3]) == b"abc"
    assert not os.path.exists(f"/proc/self/fd/{descriptor}") or "ringlog" not in os.readlink(
        f"/proc/self/fd/{descriptor}"
    )


def test_small_batches_need_none_and_huge_ones_get_none():
    assert near_memory(BATCH_BYTES_MIN - 1) is None
    assert near_memory(MEMORY_BYTES + 1) is None
    assert near_memory(BATCH_BYTES_MIN) is not None


def test_a_system_that_gives_no_such_memory_does_not_stop_a_producer(monkeypatch):
    def forbidden(*args):
        raise PermissionError(1, "memfd_create")

    monkeypatch.setattr(os, "memfd_create", forbidden)
    assert near_memory(BATCH) is None


def cut(into, codec=Codec.NONE, value_bytes=100):
    column = Column.gather([b"x" * value_bytes] * 50, "values")
    made = cut_columns(
        column, None, None, timestamps=17, start=0, stop=50, bytes_target=1024, codec=codec, into=into
    )
    seal_for(made.data, 1, 0, 0)
    return made


def test_a_batch_is_the_same_wherever_it_is_made():
    place = NearMemory(BATCH).take()
    place.memory[:] = b"\xff" * len(place.memory)
    made, other = cut(place.memory), cut(None)
    assert bytes(made.data) == bytes(other.data)
    assert (made.count, made.stop) == (other.count, other.stop)
    assert bytes(place.memory[: len(made.data)]) == bytes(made.data)
    assert set(bytes(place.memory[len(made.data) :])) == {0xFF}, "nothing is written behind it"


def test_a_batch_that_does_not_fit_or_is_compressed_is_made_elsewhere():
    room = memoryview(bytearray(HEADROOM + 1024))
    large = cut(room, value_bytes=2000)
    assert isinstance(large.data, bytearray) and bytes(large.data) == bytes(cut(None, value_bytes=2000).data)
    assert isinstance(cut(room, codec=Codec.GZIP).data, bytearray)
    assert bytes(room) == bytes(len(room))


@given(st.lists(st.tuples(st.integers(1, 5 * UNIT), st.integers(0, 9)), max_size=60))
def test_places_of_any_size_never_overlap_and_all_memory_is_free_in_the_end(wishes):
    near = NearMemory(UNIT, 16 * UNIT)
    held = []
    for nbytes, keep in wishes:
        place = near.take(nbytes)
        if place is None:
            assert held, "there was plenty"
        else:
            assert nbytes <= len(place.memory) < nbytes + UNIT and place.position % UNIT == 0
            held.append(place)
        del place
        while len(held) > keep:
            held.pop(0)
        spans = sorted((one.position, one.position + len(one.memory)) for one in held)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    held.clear()
    assert len(near.take(16 * UNIT).memory) == 16 * UNIT


def test_what_is_retired_gives_no_place_any_more():
    near = NearMemory(UNIT, 4 * UNIT)
    place = near.take()
    near.retire()
    assert near.take() is None
    place.memory[:3] = b"abc"
    assert bytes(place.memory[:3]) == b"abc"


def test_before_a_fork_memory_for_replies_is_retired_and_none_is_made_until_it_is_over():
    near = landing_memory()
    assert near.take(UNIT) is not None
    _forks.begin()
    try:
        assert near.retired and near.take(UNIT) is None
        assert landing_memory() is None
    finally:
        _forks.end()
    assert landing_memory().take(UNIT) is not None


def test_a_system_that_gives_no_such_memory_does_not_stop_a_consumer(monkeypatch):
    def forbidden(*args):
        raise PermissionError(1, "memfd_create")

    monkeypatch.setattr(os, "memfd_create", forbidden)
    assert landing_memory() is None
