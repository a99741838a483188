"""The socket of a bridge: who has left, and who only has the descriptor of somebody who has."""

from __future__ import annotations

import socket

import zmq

from spark_bridge.bridge_socket import BridgeSocket
from tests.support.node import wait_for
from tests.support.patience import stretched


def test_an_executor_that_gets_the_descriptor_of_one_that_left_is_not_taken_for_it():
    bridge = BridgeSocket(["tcp://127.0.0.1:*"])
    connections = bridge._router
    (endpoint,) = bridge.endpoints
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port))) as knocking:
        wait_for("somebody knocks", lambda: connections.monitor.poll(0), stretched(10))
        assert knocking.fileno() >= 0
    with zmq.Context() as context, context.socket(zmq.DEALER) as executor:
        executor.set(zmq.LINGER, 0)
        executor.connect(endpoint)
        executor.send(b"a question")
        wait_for("the question", lambda: connections.socket.poll(0), stretched(10))
        ((client, frame),) = bridge.receive()
        assert bytes(frame) == b"a question"
        assert client not in bridge.left()
        executor.close()
        wait_for("it leaves", lambda: client in bridge.left(), stretched(10))
    bridge.close()
