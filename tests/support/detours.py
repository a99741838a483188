"""Connections between nodes that can be held up, for machines without network namespaces: each node reaches each other
one through a detour of its own, which passes bytes on, or does not.

What is held up is not lost: TCP would send it again when the cut is healed, and so do we. Only the ways between nodes
lead through detours; clients reach every node.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import threading
from collections.abc import Iterable, Mapping

import zmq

VARIABLE = "RINGLOG_TEST_DETOURS"
PORTS = 2
"""Of each node: for controllers, and the next one for replication."""
HOST = "127.0.0.1"
PIECE_BYTES = 64 << 10


class Detour:
    """From one node to one port of another."""

    def __init__(self, source: int, destination: int, port: int) -> None:
        self.source, self.destination, self.port = source, destination, port
        self.listener = socket.create_server((HOST, 0), backlog=64)

    @property
    def endpoint(self) -> str:
        return f"tcp://{HOST}:{self.listener.getsockname()[1]}"


class Pipe:
    """One direction of a connection: what waits here was read from the one end and not taken by the other yet."""

    def __init__(self, one: socket.socket, other: socket.socket, way: tuple[int, int]) -> None:
        self.reader, self.writer, self.way = one, other, way
        self.waiting = b""


class DetourWires(threading.Thread):
    """All detours of a cluster, carried by one thread."""

    name = "detours"
    reach_clients = False

    def __init__(self, nodes: Iterable[int]) -> None:
        super().__init__(name="detours", daemon=True)
        self._nodes = list(nodes)
        self._ways: dict[int, dict[str, str]] = {node: {} for node in self._nodes}
        self._cuts: frozenset[tuple[int, int]] = frozenset()
        self._selector = selectors.DefaultSelector()
        self._ends: dict[socket.socket, tuple[Pipe, Pipe]] = {}
        """By each end of a connection: the pipe that it fills, and the one that it is filled by."""
        self._bell, self._wake = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._is_closed = False

    def lead(self, ports: Mapping[int, int]) -> None:
        """Make the detours to the nodes that listen at these ports, before the first is started."""
        for source in self._nodes:
            for destination, first in ports.items():
                if destination == source:
                    continue
                for port in range(first, first + PORTS):
                    detour = Detour(source, destination, port)
                    detour.listener.setblocking(False)
                    self._selector.register(detour.listener, selectors.EVENT_READ, detour)
                    self._ways[source][f"tcp://{HOST}:{port}"] = detour.endpoint
        self.start()

    def host_of(self, node_id: int) -> str:
        return HOST

    def program_of(self, node_id: int) -> list[str]:
        return [sys.executable, "-m", "tests.support.detours"]

    def environment_of(self, node_id: int) -> dict[str, str]:
        return {VARIABLE: json.dumps(self._ways[node_id])}

    def cut_one_way(self, source: int, destination: int) -> None:
        self._set_cuts(self._cuts | {(source, destination)})

    def heal(self) -> None:
        self._set_cuts(frozenset())

    def _set_cuts(self, cuts: frozenset[tuple[int, int]]) -> None:
        self._cuts = cuts
        self._wake.send(b"!")

    def close(self) -> None:
        self._is_closed = True
        self._wake.send(b"!")
        if self.ident is not None:
            self.join(10)
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        self._wake.close()

    # -- the thread ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while not self._is_closed:
            for key, events in self._selector.select():
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj is self._bell:
                    self._bell.recv(PIECE_BYTES)
                    for end in list(self._ends):
                        self._interest(end)
                elif isinstance(key.data, Detour):
                    self._accept(key.data)
                elif key.fileobj in self._ends:
                    self._carry(key.fileobj, events)

    def _accept(self, detour: Detour) -> None:
        near, _ = detour.listener.accept()
        far = socket.socket()
        try:
            far.connect((HOST, detour.port))
        except OSError:
            near.close()  # nobody is there: the caller hears of it as of any lost connection
            far.close()
            return
        there = Pipe(near, far, (detour.source, detour.destination))
        back = Pipe(far, near, (detour.destination, detour.source))
        self._ends[near], self._ends[far] = (there, back), (back, there)
        for end in (near, far):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(end, selectors.EVENT_READ)
            self._interest(end)

    def _interest(self, end: socket.socket) -> None:
        """Read where there is room and the way is free; write where something waits."""
        filled, filling = self._ends[end]
        wanted = 0
        if not filled.waiting and filled.way not in self._cuts:
            wanted |= selectors.EVENT_READ
        if filling.waiting and filling.way not in self._cuts:
            wanted |= selectors.EVENT_WRITE
        known = end in self._selector.get_map()
        if wanted and known:
            self._selector.modify(end, wanted)
        elif wanted:
            self._selector.register(end, wanted)
        elif known:
            self._selector.unregister(end)

    def _carry(self, end: socket.socket, events: int) -> None:
        filled, filling = self._ends[end]
        try:
            if events & selectors.EVENT_READ:
                filled.waiting = end.recv(PIECE_BYTES)
                if not filled.waiting:
                    raise ConnectionResetError
            if events & selectors.EVENT_WRITE and filling.waiting:
                filling.waiting = filling.waiting[end.send(filling.waiting) :]
        except BlockingIOError:
            return
        except OSError:
            self._hang_up(filled)
            return
        for one in (filled.reader, filled.writer):
            self._interest(one)

    def _hang_up(self, pipe: Pipe) -> None:
        for end in (pipe.reader, pipe.writer):
            if end in self._selector.get_map():
                self._selector.unregister(end)
            del self._ends[end]
            end.close()


def main() -> None:
    """A node whose connections to other nodes take the detours that its environment names."""
    ways: dict[str, str] = json.loads(os.environ[VARIABLE])
    connect = zmq.Socket.connect

    def by_detour(socket: zmq.Socket[bytes], address: str) -> object:
        return connect(socket, ways.get(address, address))

    zmq.Socket.connect = by_detour  # type: ignore[method-assign,assignment]
    from ringlog.node.__main__ import main as run_node

    run_node()


if __name__ == "__main__":
    main()
