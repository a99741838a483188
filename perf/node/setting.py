"""What a node's benchmark is given: a running node, topics of its own, and the bare limits of the same machine."""

from __future__ import annotations

import itertools
import os
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perf.micro.raw_disk import make_reserved, random_block, write_everywhere
from perf.node.raw_zmq import send_frames
from perf.node.scale import NodeScale
from ringlog.client.admin import Admin
from ringlog.client.producer import Producer
from ringlog.disk.choose import open_disk
from ringlog.limits import BLOCK_BYTES
from ringlog.node.embedded import EmbeddedNode

_numbers = itertools.count()
CHUNK_BYTES = 4 << 20
CHUNKS_AHEAD = 12
"""48 MiB on their way: what a producer's buffer has room for, by default, beside the chunk that is being sent."""


class NodeBench(NamedTuple):
    """One run."""

    scale: NodeScale
    node: EmbeddedNode
    directory: str

    def topic(self, partitions: int) -> str:
        """A new topic."""
        name = f"bench-{next(_numbers)}"
        with Admin(self.node.bootstrap) as admin:
            admin.create_topic(name, num_partitions=partitions)
        return name

    def drop(self, topic: str) -> None:
        with Admin(self.node.bootstrap) as admin:
            admin.delete_topic(topic)

    def raw_loopback(self, frame_bytes: int, scheme: str = "tcp") -> float:
        """GB/s of bare ZeroMQ between two processes, frames of this size."""
        if scheme == "ipc":
            endpoint = f"ipc://{self.directory}/raw-{next(_numbers)}.sock"
        else:
            endpoint = f"tcp://127.0.0.1:{21000 + os.getpid() % 10000 + next(_numbers) % 100}"
        return send_frames(endpoint, frame_bytes, self.scale.raw_bytes)

    def raw_durable_gb_per_s(self, files: int, write_bytes: int) -> float:
        """GB/s of durable direct writes into reserved space, one in flight to each of so many files."""
        disk = open_disk()
        paths = [os.path.join(self.directory, f"raw-{next(_numbers)}") for _ in range(files)]
        cycles = max(2, self.scale.raw_bytes // (files * write_bytes))
        try:
            made = [make_reserved(disk, path, cycles * write_bytes) for path in paths]
            block = random_block(write_bytes)
            began = time.perf_counter()
            for cycle in range(cycles):
                write_everywhere(disk, made, block, cycle * write_bytes)
            return files * cycles * write_bytes / (time.perf_counter() - began) / 1e9
        finally:
            disk.shutdown()
            for path in paths:
                os.unlink(path)

    def raw_durable_ms(self, count: int = 200) -> float:
        """Milliseconds of one durable direct write of a block into reserved space: the median."""
        disk = open_disk()
        path = os.path.join(self.directory, f"raw-{next(_numbers)}")
        try:
            file = make_reserved(disk, path, count * BLOCK_BYTES)
            block = random_block(BLOCK_BYTES)
            waits = []
            for at in range(count):
                began = time.perf_counter()
                disk.wait(disk.write(file, [block], at * BLOCK_BYTES, durable=True))
                waits.append(time.perf_counter() - began)
            return float(np.median(waits)) * 1e3
        finally:
            disk.shutdown()
            os.unlink(path)


def values(count: int, size: int) -> npt.NDArray[np.uint8]:
    """Random values, one row each."""
    return np.random.default_rng(7).integers(0, 256, (count, size), dtype=np.uint8)


def send_all(producer: Producer, topic: str, chunk: npt.NDArray[np.uint8], records: int) -> float:
    """Send records in chunks by produce_many, some ahead of their acks; seconds until all are acknowledged."""
    waiting = []
    began = time.perf_counter()
    for at in range(0, records, len(chunk)):
        waiting.append(producer.produce_many(topic, chunk[: min(len(chunk), records - at)]))
        if len(waiting) > CHUNKS_AHEAD:
            waiting.pop(0).result(120)
    for future in waiting:
        future.result(120)
    return time.perf_counter() - began


def chunk_of(size: int) -> npt.NDArray[np.uint8]:
    return values(CHUNK_BYTES // size, size)
