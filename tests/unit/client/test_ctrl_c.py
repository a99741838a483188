"""Ctrl-C ends every wait of a producer at once, and loses nothing of what is on its way."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from ringlog import Producer
from ringlog.net.framing import Api
from tests.support.patience import stretched
from tests.support.router import RouterNode

PRESSED_AFTER_S = 0.3


@pytest.fixture
def node():
    with RouterNode() as made:
        made.create("t", 1)
        yield made


@pytest.fixture
def producer(node):
    with Producer(node.bootstrap, batch_size=1024, buffer_memory=4096) as made:
        made.produce("t", b"first").result(5)
        keep_silent(node)
        yield made


def keep_silent(node) -> None:
    node.before = lambda header, body: b"" if header.api_key == Api.PRODUCE else None


def speak_again(node) -> None:
    """What was sent and not answered is sent again on a new connection."""
    node.before = lambda header, body: None
    node.restart()


def fill(producer: Producer) -> None:
    while True:
        producer.produce("t", b"x" * 500)


@pytest.mark.parametrize(
    "wait",
    [
        lambda producer: producer.flush(),
        lambda producer: producer.flush(60),
        lambda producer: producer.produce("t", b"v").result(),
        lambda producer: producer.produce("t", b"v").result(60),
        lambda producer: producer.produce_many("t", [b"v"]).result(),
        fill,
        lambda producer: producer.produce_many("t", [b"x" * 500] * 1000),
    ],
    ids=[
        "flush",
        "flush(60)",
        "result",
        "result(60)",
        "result of many",
        "a full buffer",
        "many in a full buffer",
    ],
)
def test_ctrl_c_interrupts_a_wait_and_the_producer_goes_on(node, producer, wait):
    on_its_way = producer.produce("t", b"on its way")
    pressed = threading.Timer(PRESSED_AFTER_S, os.kill, (os.getpid(), signal.SIGINT))
    began_s = time.monotonic()
    pressed.start()
    with pytest.raises(KeyboardInterrupt):
        wait(producer)
    assert time.monotonic() - began_s < stretched(5.0)
    assert not on_its_way.done()
    speak_again(node)
    producer.flush(stretched(20.0))
    assert on_its_way.result(0).offset == 1
    assert producer.produce("t", b"after").result(stretched(5.0)).durability == "flushed"
