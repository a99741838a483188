"""Futures of batches that are done at awkward moments."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from ringlog.client import futures
from ringlog.client.futures import BatchState, RecordFuture
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
