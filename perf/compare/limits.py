"""The limits of the machine, measured beside a comparison."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time

import numpy as np

from perf.micro import ring
from perf.micro.raw_disk import make_reserved, random_block, write_everywhere
from perf.node.raw_zmq import send_frames
from perf.peers.process import free_port
from perf.stats import median
from ringlog.disk.choose import open_disk

KIB, MIB = 1 << 10, 1 << 20
BATCH_BYTES = 256 * KIB
FILES = 16
"""A durable write at the batch size goes to so many partitions at once, as a shard's cycle does."""
WIRE_SIZES = {"64k": 64 * KIB, "1m": MIB}


def measure(directory: str, total_bytes: int) -> dict[str, float]:
    """Every limit once, in about a second for each 100 MB."""
    found = {
        "memcpy_gb_per_s": _memcpy(total_bytes),
        "ring_hop_gb_per_s": ring.between_processes(64 * KIB, max(total_bytes // (64 * KIB), 600))
        * 64
        * KIB
        / 1e9,
    }
    for name, size in WIRE_SIZES.items():
        found[f"tcp_{name}_gb_per_s"] = _loopback(size, total_bytes)
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        found[f"zmq_{name}_gb_per_s"] = send_frames(endpoint, size, total_bytes)
    found["disk_direct_gb_per_s"] = _sequential(directory, total_bytes)
    found["durable_4k_ms"], _ = _durable(directory, 4 * KIB, 1, 100)
    _, found["durable_batch_gb_per_s"] = _durable(
        directory, BATCH_BYTES, FILES, max(total_bytes // (4 * MIB), 2)
    )
    return found


def _memcpy(total_bytes: int) -> float:
    source = np.random.default_rng(1).integers(0, 256, 16 * MIB, dtype=np.uint8)
    target = np.zeros_like(source)
    rounds = max(total_bytes // source.nbytes, 4)
    began = time.perf_counter()
    for _ in range(rounds):
        np.copyto(target, source)
    return rounds * source.nbytes / (time.perf_counter() - began) / 1e9


def _loopback(size: int, total_bytes: int) -> float:
    """A thread sends, this one receives: both are inside the kernel, without Python's lock, nearly all the time."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sending = socket.create_connection(listening.getsockname())
        receiving, _ = listening.accept()
    block, into = os.urandom(size), bytearray(size)
    count = max(total_bytes // size, 4)

    def send() -> None:
        for _ in range(count):
            sending.sendall(block)

    thread = threading.Thread(target=send)
    with sending, receiving:
        began = time.perf_counter()
        thread.start()
        left = count * size
        while left:
            left -= receiving.recv_into(into)
        taken_s = time.perf_counter() - began
        thread.join()
    return count * size / taken_s / 1e9


def _sequential(directory: str, total_bytes: int) -> float:
    """One file, direct writes of 1 MiB one behind the other, four of them on their way, no flush between them."""
    path = os.path.join(directory, "limit-sequential")
    disk = open_disk()
    try:
        count = max(total_bytes // MIB, 4)
        file = make_reserved(disk, path, count * MIB)
        block = random_block(MIB)
        waiting: list[int] = []
        began = time.perf_counter()
        for at in range(count):
            waiting.append(disk.write(file, [block], at * MIB, durable=False))
            disk.submit()
            if len(waiting) == 4:
                disk.wait(waiting.pop(0))
        for token in waiting:
            disk.wait(token)
        return count * MIB / (time.perf_counter() - began) / 1e9
    finally:
        disk.shutdown()
        os.unlink(path)


def _durable(directory: str, size: int, files: int, rounds: int) -> tuple[float, float]:
    """(median milliseconds, GB/s) of durable direct writes of a size, one to each of some files at once."""
    paths = [os.path.join(directory, f"limit-durable-{number}") for number in range(files)]
    disk = open_disk()
    try:
        opened = [make_reserved(disk, path, size * rounds) for path in paths]
        block = random_block(size)
        marks = [time.perf_counter()]
        for at in range(rounds):
            write_everywhere(disk, opened, block, at * size)
            marks.append(time.perf_counter())
        waits = [after - before for before, after in itertools.pairwise(marks)]
        return median(waits) * 1e3, size * files * rounds / (marks[-1] - marks[0]) / 1e9
    finally:
        disk.shutdown()
        for path in paths:
            os.unlink(path)
