"""Connections: whose they are, and which of them are cut because their messages never end."""

from __future__ import annotations

import socket

from ringlog.limits import UNFINISHED_BYTES_MAX
from ringlog.net.connections import LOOKED_AT_MAX, Connections, wire_bytes
from ringlog.net.descriptors import UNIX_SEND_BUFFER_BYTES, cut, received_bytes, widen


class Kernel:
    """What it has received for each descriptor."""

    def __init__(self) -> None:
        self.received: dict[int, int | None] = {}

    def __call__(self, fd: int) -> int | None:
        return self.received.get(fd, 0)


def test_a_client_whose_messages_come_out_is_never_cut_however_much_it_sends():
    kernel = Kernel()
    connections = Connections(kernel)
    connections.accepted(7)
    connections.met(7, b"client")
    for _ in range(100):
        kernel.received[7] = (kernel.received.get(7) or 0) + wire_bytes(8 << 20)
        connections.took(b"client", 8 << 20)
        assert connections.floods() == []


def test_bytes_are_counted_only_where_the_kernel_counts_them_too():
    kernel = Kernel()
    connections = Connections(kernel)
    for fd in (7, 8):
        connections.accepted(fd)
    kernel.received[8] = None
    connections.met(7, b"far")
    connections.met(8, b"near")
    assert list(connections.counted) == [b"far"]
    assert b"near" in connections.descriptors
    connections.ended(7)
    assert not connections.counted


def test_what_comes_late_through_a_descriptor_that_another_connection_has_by_now_harms_nobody():
    """Messages of a connection wait in the socket when it is gone already, and its descriptor is given again."""
    kernel = Kernel()
    connections = Connections(kernel)
    connections.accepted(7)
    connections.ended(7)
    connections.accepted(7)
    connections.met(7, b"late")
    connections.took(b"late", 10)
    connections.met(7, b"here")
    connections.took(b"here", 10)
    assert (list(connections.counted), list(connections.descriptors)) == ([b"here"], [b"here"])
    connections.took(b"late", 10)
    assert connections.ended(7) == b"here"
    for client in (b"late", b"here"):
        connections.took(client, 10)
    assert not connections.counted and not connections.descriptors


def test_who_is_taken_for_gone_by_a_message_that_was_late_is_met_again():
    kernel = Kernel()
    connections = Connections(kernel)
    connections.accepted(7)
    connections.met(7, b"here")
    connections.met(7, b"late")
    assert b"here" not in connections.descriptors
    connections.met(7, b"here")
    assert connections.ended(7) == b"here" and not connections.counted


def test_a_connection_with_unfinished_messages_is_found_at_the_bound():
    kernel = Kernel()
    connections = Connections(kernel)
    connections.accepted(7)
    connections.accepted(8)
    kernel.received = {7: UNFINISHED_BYTES_MAX, 8: 100}
    assert connections.floods() == []
    kernel.received[7] = UNFINISHED_BYTES_MAX + 1
    assert connections.floods() == [7]


def test_what_was_received_before_a_connection_was_noticed_counts_too():
    kernel = Kernel()
    connections = Connections(kernel)
    kernel.received[7] = UNFINISHED_BYTES_MAX + 1
    connections.accepted(7)
    assert connections.floods() == [7]


def test_of_very_many_connections_each_has_its_turn_to_be_looked_at():
    kernel = Kernel()
    connections = Connections(kernel)
    for fd in range(3 * LOOKED_AT_MAX):
        connections.accepted(fd)
    kernel.received = dict.fromkeys((0, 700), UNFINISHED_BYTES_MAX + 1)
    assert [connections.floods() for _ in range(3)] == [[0], [], [700]]


def test_heartbeats_of_months_do_not_add_up():
    kernel = Kernel()
    connections = Connections(kernel)
    connections.accepted(7)
    for look in range(1, 50_000):
        kernel.received[7] = look * 3000
        assert connections.floods() == []


def test_a_descriptor_that_is_used_again_is_another_client():
    connections = Connections(Kernel())
    connections.accepted(7)
    connections.met(7, b"first")
    assert connections.ended(7) == b"first"
    connections.accepted(7)
    connections.took(b"first", 100)
    assert connections.ended(7) is None
    assert len(connections) == 0


def test_sockets_that_are_not_tcp_are_left_alone():
    kernel = Kernel()
    kernel.received[7] = None
    connections = Connections(kernel)
    connections.accepted(7)
    assert connections.floods() == []
    one, other = socket.socketpair()
    with one, other:
        assert received_bytes(one.fileno()) is None
    assert received_bytes(-1) is None


def test_the_kernel_tells_what_a_connection_received_and_a_cut_ends_it():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            client.sendall(bytes(12_345))
            while len(accepted.recv(1 << 16, socket.MSG_PEEK)) < 12_345:
                continue
            assert received_bytes(accepted.fileno()) == 12_345
            cut(accepted.fileno())
            assert client.recv(1) == b""
    cut(accepted.fileno())


def test_a_connection_on_the_same_host_has_room_for_a_whole_batch_and_others_are_left_alone():
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there, socket.socket() as wire:
        before = wire.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        for one in (here, wire):
            widen(one.fileno())
        with open("/proc/sys/net/core/wmem_max") as allowed:
            room = min(UNIX_SEND_BUFFER_BYTES, int(allowed.read()))
        assert here.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= room
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before


def test_widening_a_descriptor_that_was_closed_meanwhile_does_nothing():
    here, there = socket.socketpair(socket.AF_UNIX)
    fd = here.fileno()
    here.close()
    there.close()
    widen(fd)
    widen(-1)
