"""On which thread a delivery callback runs, as its documentation says."""

from __future__ import annotations

import threading

import pytest

from ringlog import Producer
from ringlog.client.futures import ManyFuture, RecordFuture
from ringlog.errors import ClientClosed, RequestTimeout
from ringlog.net.framing import Api
from tests.support.node import wait_for


def test_what_is_answered_later_calls_back_on_the_io_thread(node):
    called: list[threading.Thread] = []
    node.delay_s = 0.1
    with Producer(node.bootstrap, linger_ms=50) as producer:
        producer.produce("t", b"v", on_delivery=lambda future: called.append(threading.current_thread()))
    (thread,) = called
    assert thread is not threading.current_thread()


def test_what_is_done_already_calls_back_at_once_on_the_thread_that_asks(node):
    called: list[threading.Thread] = []
    with Producer(node.bootstrap) as producer:
        futures = (producer.produce("t", b"v"), producer.produce_many("t", [b"v"]))
        for future in futures:
            future.result(5)
            future.add_done_callback(lambda future: called.append(threading.current_thread()))
    assert called == [threading.current_thread()] * 2


def test_what_a_close_gives_up_calls_back_on_the_io_thread_if_it_had_left_else_on_the_thread_that_closes(
    node,
):
    node.before = lambda header, body: b"" if header.api_key == Api.PRODUCE else None
    called: dict[bytes, tuple[bool, type]] = {}

    def note(value: bytes):
        def on_delivery(future) -> None:
            here = threading.current_thread() is threading.main_thread()
            called[value] = here, type(future.exception())

        return on_delivery

    producer = Producer(node.bootstrap)
    producer.produce("t", b"left", partition=0, on_delivery=note(b"left"))
    wait_for("the first", lambda: any(header.api_key == Api.PRODUCE for header in node.seen), 10)
    # A node that has not answered a producer yet is sent one batch only.
    producer.produce("t", b"waits", partition=0, on_delivery=note(b"waits"))
    with pytest.raises(RequestTimeout):
        producer.close(0.2)
    assert called == {b"left": (False, ClientClosed), b"waits": (True, ClientClosed)}


@pytest.mark.parametrize(
    "where", [RecordFuture.add_done_callback, ManyFuture.add_done_callback, Producer.produce]
)
def test_the_documentation_names_all_three(where):
    words = " ".join((where.__doc__ or "").split())
    assert "I/O thread" in words and "on the caller's" in words and "that closes the producer" in words
