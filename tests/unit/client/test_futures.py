"""Futures of batches that are done at awkward moments."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from ringlog.client import futures
from ringlog.client.futures import BatchState, ManyFuture, Part, RecordFuture
from ringlog.errors import ClientClosed


def test_a_batch_may_end_on_the_thread_that_is_about_to_wait_for_it(monkeypatch):
    """As when the collector runs there, and ends a producer that nobody holds; or a signal handler closes it."""
    state = BatchState("t", 0)

    class Meddling(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            state.fail(ClientClosed("the producer was closed"))

    raised = []

    def wait() -> None:
        with pytest.raises(ClientClosed):
            RecordFuture((state, 0)).result()
        raised.append(True)

    monkeypatch.setattr(futures, "threading", SimpleNamespace(Event=Meddling))
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(5)
    assert raised


def _in_child(call: Callable[[], object]) -> bytes:
    """What a call raises in the child of a fork, by the name of its type; one that hangs ends with SIGALRM."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        try:
            os.write(writer, repr(call()).encode())
        except Exception as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.parametrize(
    "ask",
    [
        RecordFuture.result,
        RecordFuture.exception,
        lambda future: future.result(60),
        lambda future: future.result(0),
        lambda future: future.add_done_callback(print),
        lambda future: ManyFuture([Part(future[0], 0, 1)]).result(),
        lambda future: ManyFuture([Part(future[0], 0, 1)]).add_done_callback(print),
    ],
    ids=["result", "exception", "timeout", "look", "callback", "many", "many-callback"],
)
def test_in_the_child_of_a_fork_nobody_waits_for_records_that_its_parent_sent(ask):
    """Nor for a thread of the parent that held the lock at the fork."""
    state = BatchState("t", 0)
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with state._lock:
            held.set()
            over.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    said = _in_child(lambda: ask(RecordFuture((state, 0))))
    over.set()
    holder.join()
    assert said.startswith(b"InvalidRequest: the record was sent before the fork"), said
    state.resolve(7, "flushed")
    assert RecordFuture((state, 0)).result().offset == 7, "in the parent"


def test_what_was_done_before_a_fork_is_known_in_the_child():
    state = BatchState("t", 0)
    state.resolve(7, "flushed")
    assert b"offset=7" in _in_child(RecordFuture((state, 0)).result)
