"""Doorbells: readable from a ring until cleared, and rung only for a reader that sleeps."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from ringlog.errors import InvalidRequest
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.ring import Ring, ring_bytes


@pytest.fixture
def bell():
    with Doorbell.create() as made:
        yield made


@pytest.fixture
def pair(bell):
    ring = Ring.create(bytearray(ring_bytes(4096)), capacity_bytes=4096)
    return ring.writer(bell), ring.reader(bell)


def test_many_rings_are_one_wakeup(bell) -> None:
    bell.ring()
    bell.ring()
    assert bell.wait(0)
    assert bell.clear()
    assert not bell.wait(0)
    assert not bell.clear()


def test_a_busy_reader_costs_the_writer_no_ring(bell, pair) -> None:
    writer, _ = pair
    writer.write(b"x")
    assert not bell.wait(0)


@pytest.mark.parametrize("publish", ["write", "write_many", "commit", "close"])
def test_whatever_is_published_wakes_a_sleeping_reader_once(bell, pair, publish) -> None:
    writer, reader = pair
    if publish == "commit":
        assert writer.claim(1) is not None
    assert reader.announce_wait()
    calls = {
        "write": lambda: writer.write(b"x"),
        "write_many": lambda: writer.write_many(np.array([0, 1]), b"x"),
        "commit": writer.commit,
        "close": writer.close,
    }
    calls[publish]()
    assert bell.wait(0)
    reader.end_wait()
    assert not bell.wait(0)
    if publish != "close":
        writer.write(b"y")
        assert not bell.wait(0)  # one announcement, one ring


def test_what_need_not_wake_a_sleeping_reader_is_read_when_something_else_wakes_it(bell, pair) -> None:
    writer, reader = pair
    assert reader.announce_wait()
    assert writer.write(b"quiet", wakes=False)
    assert not bell.wait(0)
    assert writer.write(b"loud")
    assert bell.wait(0)
    assert [bytes(message.body) for message in reader.read_all()] == [b"quiet", b"loud"]


def test_a_reader_that_is_about_to_sleep_sees_also_what_wakes_nobody(bell, pair) -> None:
    writer, reader = pair
    assert writer.write(b"quiet", wakes=False)
    assert not reader.announce_wait()


def test_a_writer_keeps_ringing_the_doorbell_that_it_was_given(bell) -> None:
    ring = Ring.create(bytearray(ring_bytes(4096)), capacity_bytes=4096)
    given = Doorbell(os.dup(bell.fd))
    writer, reader = ring.writer(given), ring.reader(bell)
    given.close()  # its number may now mean another file
    assert reader.announce_wait()
    writer.write(b"x")
    assert bell.wait(0)


def test_a_reader_with_something_to_read_does_not_sleep(bell, pair) -> None:
    writer, reader = pair
    writer.write(b"x")
    assert not reader.announce_wait()
    writer.write(b"y")
    assert not bell.wait(0)  # the announcement was withdrawn


def test_a_reader_does_not_sleep_on_a_closed_or_retired_ring(bell) -> None:
    ring = Ring.create(bytearray(ring_bytes(4096)), capacity_bytes=4096)
    reader = ring.reader(bell)
    ring.retire()
    assert not reader.announce_wait()


def test_wait_sleeps_until_the_writer_publishes(pair) -> None:
    writer, reader = pair
    thread = threading.Timer(0.02, writer.write, [b"x"])
    thread.start()
    assert reader.wait(10)
    assert [bytes(message.body) for message in reader.read_all()] == [b"x"]
    thread.join()


def test_wait_ends_when_its_time_is_up(pair) -> None:
    assert not pair[1].wait(0.001)


def test_a_reader_without_a_doorbell_cannot_wait() -> None:
    reader = Ring.create(bytearray(ring_bytes(4096)), capacity_bytes=4096).reader()
    with pytest.raises(InvalidRequest):
        reader.wait(0)
