"""The limit of the wire: one process sends frames through a bare DEALER, another takes them from a bare ROUTER.

`python -m perf.node.raw_zmq ENDPOINT FRAMES` is the taking side: it answers once it has them all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import zmq

WINDOW = 1000


def send_frames(endpoint: str, frame_bytes: int, total_bytes: int) -> float:
    """GB/s from the first frame sent to the answer that all have arrived."""
    frames = max(total_bytes // frame_bytes, 4)
    receiver = subprocess.Popen([sys.executable, "-m", "perf.node.raw_zmq", endpoint, str(frames)])
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    try:
        socket.connect(endpoint)
        socket.send(b"begin")
        socket.recv()
        frame = os.urandom(frame_bytes)
        copy = frame_bytes < 64 * 1024
        began = time.perf_counter()
        for _ in range(frames):
            socket.send(frame, 0, copy=copy)
        socket.recv()
        return frames * frame_bytes / (time.perf_counter() - began) / 1e9
    finally:
        socket.close()
        context.term()
        receiver.wait(30)


def take_frames(endpoint: str, frames: int) -> None:
    """Take frames without looking at them, as cheaply as the binding allows."""
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.set(zmq.LINGER, 1000)
    socket.bind(endpoint)
    routing_id, _ = socket.recv_multipart()
    socket.send_multipart([routing_id, b"go"])
    for _ in range(frames):
        socket.recv()
        socket.recv(copy=False)
    socket.send_multipart([routing_id, b"done"])
    socket.close()
    context.term()


if __name__ == "__main__":
    take_frames(sys.argv[1], int(sys.argv[2]))
