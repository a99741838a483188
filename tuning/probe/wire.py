"""Measures bare ZeroMQ between two processes: bytes per second by frame size, and round trips, over tcp and ipc."""

from __future__ import annotations

import socket as sockets
import time
from collections.abc import Callable

import zmq

from ringlog.limits import KIB, MIB
from tuning.probe.measured import WirePoint
from tuning.probe.partner import Partner
from tuning.probe.statistics import percentile

WINDOW_BYTES = 16 * MIB
WINDOW_FRAMES_MAX = 1000
ZERO_COPY_BYTES = 64 * KIB
"""Smaller messages are cheaper to copy, as the node does."""
ANSWER_MS = 30_000
Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]
_END, _PING = b"end", b"ping"


def measure_wire(partner: Partner, endpoint: str, frame_bytes: int, seconds: float) -> WirePoint:
    """Frames from a DEALER here to a ROUTER there, until the answer that all have arrived."""
    with zmq.Context() as context, _dealer(context, partner, endpoint, frame_bytes) as socket:
        frame = bytes(frame_bytes)
        copy = frame_bytes < ZERO_COPY_BYTES
        sent = 0
        began = time.perf_counter()
        while sent < 4 or time.perf_counter() - began < seconds:
            for _ in range(4):
                socket.send(frame, 0, copy=copy)
            sent += 4
        socket.send(_END)
        _answer(socket)
        took_s = time.perf_counter() - began
    scheme = endpoint.partition("://")[0]
    return WirePoint(scheme=scheme, frame_bytes=frame_bytes, bytes_per_s=sent * frame_bytes / took_s)


def measure_round_trip(partner: Partner, endpoint: str, seconds: float) -> float:
    """Microseconds there and back of a KiB: the median."""
    with zmq.Context() as context, _dealer(context, partner, endpoint, KIB) as socket:
        frame = _PING.ljust(KIB, b".")
        trips: list[float] = []
        until = time.perf_counter() + seconds
        while len(trips) < 3 or time.perf_counter() < until:
            began = time.perf_counter()
            socket.send(frame)
            _answer(socket)
            trips.append(time.perf_counter() - began)
        socket.send(_END)
        _answer(socket)
    return percentile(trips, 0.5) * 1e6


def _dealer(context: Context, partner: Partner, endpoint: str, frame_bytes: int) -> Socket:
    partner.ask(do="take frames", endpoint=endpoint)
    socket: Socket = context.socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.SNDHWM, max(4, min(WINDOW_BYTES // frame_bytes, WINDOW_FRAMES_MAX)))
    socket.set(zmq.RCVTIMEO, ANSWER_MS)
    socket.connect(endpoint)
    socket.send(_PING)
    _answer(socket)
    return socket


def _answer(socket: Socket) -> None:
    try:
        socket.recv()
    except zmq.Again:
        raise TimeoutError("the partner of the probe does not answer over ZeroMQ") from None


def take_frames(endpoint: str, ready: Callable[[], None]) -> None:
    """The taking side: answers pings, takes frames as cheaply as the binding allows, and answers the end."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.set(zmq.LINGER, 1000)
        socket.set(zmq.RCVHWM, 256)
        socket.bind(endpoint)
        ready()
        while True:
            sender = socket.recv()
            frame = socket.recv(copy=False)
            head = bytes(frame.buffer[:4]) if len(frame) <= KIB else b""
            if head in (_PING, _END):
                socket.send_multipart([sender, b"here"])
            if head == _END:
                return


def free_endpoint() -> str:
    """A port of this host that is free now."""
    with sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"
