"""Logs to look into and to damage: made by a real LogStore, with every kind of batch that there is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ringlog.disk.api import Disk
from ringlog.log.names import LOG, POINT_NAME, STATE_NAME
from ringlog.log.point import newest_point, with_point
from ringlog.log.state import PartitionState
from ringlog.model import Codec, TopicPartition
from ringlog.records.checksum import crc32c
from ringlog.records.encode import encode
from ringlog.records.scan import scan
from tests.support.logs import SMALL_SEGMENTS, LogWorld

START_MS = 1_700_000_000_000
RECORDS_PER_BATCH = 4


class SampleLog(LogWorld):
    """One partition, and ways to look at its files and to change them behind its back."""

    def __init__(self, disk: Disk | None = None, *, root: str | None = None, settings=SMALL_SEGMENTS) -> None:
        super().__init__(
            disk,
            settings,
            root=root,
            memory_bytes=16 << 20,
            partition=TopicPartition("orders", 0),
            open_now=False,
        )
        self.now_ms = START_MS
        self.number = 0
        self.sequence = 0
        self.open()

    # -- making it -------------------------------------------------------------------------------------------
    def append_samples(self, batches: int, value_bytes: int = 20_000, leader_epoch: int = 0) -> None:
        """Append batches: of all codecs in turn, every third by an idempotent producer."""
        for _ in range(batches):
            number, self.number = self.number, self.number + 1
            self.now_ms += 1
            producer = {}
            if number % 3 == 0:
                producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": self.sequence}
                self.sequence += RECORDS_PER_BATCH
            # Values that no codec makes smaller, so that segments fill up.
            noise = np.random.default_rng(number).bytes(value_bytes)
            batch = encode(
                [noise] * RECORDS_PER_BATCH if number % 5 == 0 else [noise, b"on", None, b""],
                keys=[b"lamp", b"fan", None, b""],
                headers=[[("room", b"hall")], [], [], []],
                timestamps=[self.now_ms, self.now_ms - 1, self.now_ms, self.now_ms - 2],
                codec=Codec(number % 5),
                transactional=number % 7 == 0,
                **producer,
            )
            self.append_raw(batch, leader_epoch)
            self.run()

    def checkpoint(self) -> None:
        """Move the recovery point to the end of the log."""
        self.settle()
        self.store.checkpoint()
        self.run()
        self.settle()

    # -- looking at it ---------------------------------------------------------------------------------------
    def names(self) -> list[str]:
        return [name for name, _ in self.disk.list_dir(self.path)]

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def segments(self) -> list[str]:
        """Names of the segment files, ascending."""
        return [name for name in self.names() if name.endswith(LOG)]

    def content(self, name: str) -> bytearray:
        return bytearray(self.fake.content(self.file(name)))

    def batches(self, name: str) -> np.ndarray:
        """The BATCH_TABLE of a segment, up to its first fault."""
        return scan(self.content(name)).table

    def position(self, name: str, row: int) -> int:
        """Where a batch of a segment begins."""
        return int(self.batches(name)["position"][row])

    def state(self) -> PartitionState:
        """As checkpoints have moved it since it was saved."""
        state = PartitionState.decode(bytes(self.content(STATE_NAME)))
        if POINT_NAME not in self.names():
            return state
        point = newest_point(bytes(self.content(POINT_NAME)), state)
        return with_point(state, point) if point else state

    # -- damaging it -----------------------------------------------------------------------------------------
    def put(self, name: str, data: bytes) -> None:
        self.fake.put(self.file(name), bytes(data))

    def poke(self, name: str, position: int, data: bytes) -> None:
        """Overwrite some bytes of a file."""
        content = self.content(name)
        content[position : position + len(data)] = data
        self.put(name, content)

    def flip(self, name: str, position: int) -> None:
        """Turn one bit of a file."""
        self.poke(name, position, bytes([self.content(name)[position] ^ 0x10]))

    def change_batch(self, name: str, row: int, edit: Callable[[bytearray], Any]) -> int:
        """Change a batch without changing its length, and make its CRC right again; returns its position."""
        at, length = self.position(name, row), int(self.batches(name)["length"][row])
        batch = self.content(name)[at : at + length]
        edit(batch)
        assert len(batch) == length
        batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
        self.poke(name, at, batch)
        return at


def closed_log() -> SampleLog:
    """Three segments, two leader epochs, a producer, all codecs; closed cleanly."""
    log = SampleLog()
    log.append_samples(30)
    log.append_samples(40, leader_epoch=2)
    log.close()
    assert len(log.segments()) == 3
    return log


def crashed_log() -> SampleLog:
    """The same, not closed: the active segment has a recovery point, batches above it, and space reserved."""
    log = SampleLog()
    log.append_samples(30)
    log.append_samples(38, leader_epoch=2)
    log.checkpoint()
    log.append_samples(6, leader_epoch=2)
    log.settle()
    assert len(log.segments()) == 3
    return log
