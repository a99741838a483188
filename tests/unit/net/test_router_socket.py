"""The ROUTER socket's monitor: what its descriptor tells, and what it leaves to be read."""

from __future__ import annotations

import select
import socket
import time

import pytest
import zmq

from ringlog.net.router import RouterSocket
from tests.support.patience import stretched

CONNECTIONS = 10


@pytest.fixture
def router():
    made = RouterSocket(["tcp://127.0.0.1:*"], connections_max=100)
    yield made
    made.close()


def connect(router: RouterSocket) -> socket.socket:
    port = int(router.endpoints[0].rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port))


def descriptor_tells(router: RouterSocket, timeout_s: float) -> bool:
    return bool(select.select([int(router.monitor.get(zmq.FD))], [], [], timeout_s)[0])


def test_events_beyond_the_bound_are_known_to_wait_though_the_descriptor_is_silent(router):
    router.follow_connections(None)
    assert not router.has_events and not descriptor_tells(router, 0)
    connected = [connect(router) for _ in range(CONNECTIONS)]
    assert descriptor_tells(router, 10)
    until = time.monotonic() + 10
    while len(router.connections) < CONNECTIONS and time.monotonic() < until:
        before = len(router.connections)
        router.follow_connections(1)
        assert router.has_events == (len(router.connections) > before), (
            "what is behind the bound is not known"
        )
    assert len(router.connections) == CONNECTIONS
    router.follow_connections(None)
    assert not router.has_events
    for one in connected:
        one.close()
    assert descriptor_tells(router, 10), "after the monitor was found empty, its descriptor tells again"


def test_beyond_the_bound_who_comes_is_cut_and_who_is_there_stays():
    router = RouterSocket(["tcp://127.0.0.1:*"], connections_max=2)
    context = zmq.Context()
    try:
        clients = [context.socket(zmq.DEALER) for _ in range(2)]
        for client in clients:
            client.connect(router.endpoints[0])
            asked(router, client)
        for _ in range(3):
            with connect(router) as late:
                late.settimeout(0.01)
                until = time.monotonic() + stretched(5)
                while not is_cut(late):
                    router.follow_connections(None)
                    assert time.monotonic() < until
        for client in clients:
            asked(router, client)
        counts: dict[str, int] = {}
        router.count_connections(counts)
        assert counts["connections_max"] == 2 and counts["connections_refused"] >= 3
        clients.pop().close(0)
        until = time.monotonic() + stretched(5)
        while len(router.connections) > 1:
            router.follow_connections(None)
            assert time.monotonic() < until
        again = context.socket(zmq.DEALER)
        clients.append(again)
        again.connect(router.endpoints[0])
        asked(router, again)
    finally:
        context.destroy(0)
        router.close()


def asked(router: RouterSocket, client: zmq.Socket[bytes]) -> None:
    client.send(b"still there")
    assert router.socket.poll(int(stretched(5) * 1000))
    assert router.socket.recv_multipart()[1] == b"still there"
    router.follow_connections(None)


def is_cut(late: socket.socket) -> bool:
    try:
        return late.recv(1000) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
