"""Frames that are sent from where they were made: whole on the other side, held until they left, and then let go of."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import zmq

from ringlog.native import _kernel
from ringlog.net import lending
from ringlog.net.lending import LENT_BYTES_MIN, send_lent, take_back
from tests.support.node import wait_for
from tests.support.patience import stretched

NOBLOCK = int(zmq.NOBLOCK)


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    made = zmq.Context()
    yield made
    made.destroy(linger=0)


def connected(context: zmq.Context) -> tuple[zmq.Socket, zmq.Socket]:
    sender, receiver = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    port = receiver.bind_to_random_port("tcp://127.0.0.1")
    sender.connect(f"tcp://127.0.0.1:{port}")
    return sender, receiver


def wait_all_back() -> None:
    wait_for("what was lent", lambda: take_back() == 0, stretched(5))


def test_a_large_frame_arrives_whole_and_is_let_go_of_when_it_left(context):
    sender, receiver = connected(context)
    frames = [bytearray(os.urandom(LENT_BYTES_MIN + n)) for n in (0, 1, 1_000_000)]
    for frame in frames:
        assert send_lent(sender, frame, 0)
    assert [receiver.recv() for _ in frames] == frames
    wait_all_back()
    for frame in frames:
        frame.append(0)  # BufferError while it is lent


def test_a_frame_is_held_while_nobody_takes_it_and_is_the_callers_again_when_the_socket_is_closed(context):
    sender = context.socket(zmq.PUSH)
    sender.connect("tcp://127.0.0.1:1")  # nobody listens there
    array = np.zeros(LENT_BYTES_MIN, dtype=np.uint8)
    seen = weakref.ref(array)
    assert send_lent(sender, memoryview(array), NOBLOCK)
    del array
    gc.collect()
    assert take_back() == 1
    assert seen() is not None, "the socket may read it at any time"
    sender.close(linger=0)
    wait_all_back()
    gc.collect()
    assert seen() is None


def test_a_frame_that_the_socket_refuses_is_not_lent(context):
    sender = context.socket(zmq.PUSH)  # connected to nobody
    frame = bytearray(LENT_BYTES_MIN)
    with pytest.raises(zmq.Again):
        send_lent(sender, frame, NOBLOCK)
    assert take_back() == 0
    frame.append(0)
    sender.close()
    with pytest.raises(zmq.ZMQError):
        send_lent(sender, bytearray(LENT_BYTES_MIN), NOBLOCK)
    assert take_back() == 0


def test_small_frames_and_other_bindings_of_zeromq_are_sent_as_ever(context, monkeypatch):
    sender, _ = connected(context)
    assert not send_lent(sender, bytearray(LENT_BYTES_MIN - 1), NOBLOCK)
    monkeypatch.setattr(lending, "_libzmq", None)
    assert not send_lent(sender, bytearray(LENT_BYTES_MIN), NOBLOCK)
    assert take_back() == 0


def test_what_has_no_bytes_is_refused():
    with pytest.raises(TypeError):
        _kernel.lend(object())
    assert take_back() == 0


def test_this_pyzmq_lends():
    """Otherwise all of the above would pass, and every frame be copied."""
    assert lending._libzmq is not None, sys.implementation


def test_many_loans_come_back_in_any_order(context):
    pairs = [connected(context) for _ in range(4)]
    data = bytearray(os.urandom(LENT_BYTES_MIN))
    for number in range(400):
        send_lent(pairs[number % 4][0], data, 0)
    for at in (2, 0, 3, 1):
        assert all(pairs[at][1].recv() == data for _ in range(100))
    wait_all_back()
