"""The metrics over HTTP: a scraper that says nothing keeps no other waiting, and a bind that fails is explained."""

from __future__ import annotations

import os
import socket
import threading
import urllib.request

import pytest

from ringlog.errors import NodeFailed
from ringlog.node import metrics_server
from tests.support.node import free_port, wait_for


@pytest.fixture(autouse=True)
def metrics(monkeypatch):
    monkeypatch.setattr(metrics_server, "stop_with_parent", lambda *_: True)
    monkeypatch.setattr(metrics_server, "all_metrics", lambda _: "ringlog_up 1\n")


def serve(listen: str) -> None:
    metrics_server.serve_metrics(listen, "/nowhere", os.getpid())


def test_a_connection_that_says_nothing_does_not_keep_others_waiting():
    port = free_port()
    threading.Thread(target=serve, args=(f"127.0.0.1:{port}",), daemon=True).start()
    silent: list[socket.socket] = []
    wait_for("the server", lambda: _connected(port, silent), 10)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.read() == b"ringlog_up 1\n"
    silent[0].close()


def _connected(port: int, made: list[socket.socket]) -> bool:
    try:
        made.append(socket.create_connection(("127.0.0.1", port), timeout=1))
    except OSError:
        return False
    return True


def test_a_port_that_is_taken_is_named_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NodeFailed, match=f"cannot listen on {listen}.*--metrics-listen"):
            serve(listen)


def test_an_address_that_is_not_of_this_host_is_not_said_to_be_in_use():
    with pytest.raises(NodeFailed, match="no such address"):
        serve("203.0.113.7:9401")
