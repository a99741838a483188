"""Logs to look into and to damage: made by a real LogStore, of every kind of batch that there is."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable

import numpy as np

from ringlog.disk.api import Disk
from ringlog.limits import MIB
from ringlog.log.batch import batch_infos
from ringlog.log.names import INDEX, LOG, SNAPSHOT, STATE_NAME, TIME_INDEX, offset_name
from ringlog.log.settings import LogSettings
from ringlog.log.state import PartitionState
from ringlog.log.store import LogStore
from ringlog.model import Codec, TopicPartition
from ringlog.records.checksum import crc32c
from ringlog.records.encode import encode
from ringlog.records.scan import check
from tests.support.fake_disk import FakeDisk

ROOT = "/data"
PARTITION = TopicPartition("orders", 0)
START_MS = 1_700_000_000_000
RECORDS_PER_BATCH = 4


class SampleLog:
    """One partition on a disk, and ways to look at its files and to change them behind its back."""

    def __init__(
        self, disk: Disk | None = None, root: str = ROOT, settings: LogSettings | None = None
    ) -> None:
        self.disk = disk if disk is not None else FakeDisk(seed=1)
        self.path = f"{root}/{PARTITION}"
        self.settings = settings if settings is not None else LogSettings(segment_bytes=1 * MIB)
        self.now_ms = START_MS
        self._sequence = 0
        self._number = 0
        self.disk.make_dir(root)
        self.store = LogStore(self.disk, root, memory=memoryview(mmap.mmap(-1, 16 * MIB)))
        self.store.open(PARTITION, self.settings, now_ms=self.now_ms)

    # -- making it -------------------------------------------------------------------------------------------
    def append(self, batches: int, value_bytes: int = 20_000, leader_epoch: int = 0) -> None:
        """Append batches: of all codecs in turn, every third by an idempotent producer."""
        for _ in range(batches):
            number, self._number = self._number, self._number + 1
            self.now_ms += 1
            producer = {}
            if number % 3 == 0:
                producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": self._sequence}
                self._sequence += RECORDS_PER_BATCH
            # Values that no codec makes smaller, so that segments fill up.
            noise = np.random.default_rng(number).bytes(value_bytes)
            self.append_batch(
                encode(
                    [noise] * RECORDS_PER_BATCH if number % 5 == 0 else [noise, b"on", None, b""],
                    keys=[b"lamp", b"fan", None, b""],
                    headers=[[("room", b"hall")], [], [], []],
                    timestamps=[self.now_ms, self.now_ms - 1, self.now_ms, self.now_ms - 2],
                    codec=Codec(number % 5),
                    transactional=number % 7 == 0,
                    **producer,
                ),
                leader_epoch,
            )

    def append_batch(self, batch: bytearray, leader_epoch: int = 0) -> None:
        infos = batch_infos(check(batch))
        self.store.append(
            PARTITION, memoryview(batch), infos, now_ms=self.now_ms, leader_epoch=leader_epoch
        )
        self.store.run(now_ms=self.now_ms)

    def checkpoint(self) -> None:
        """Move the recovery point to the end of the log."""
        self.settle()
        self.store._housekeepers[PARTITION].want_checkpoint()
        self.settle()

    def settle(self) -> None:
        self.store.drain(now_ms=self.now_ms)

    def close(self) -> None:
        self.store.close(now_ms=self.now_ms)

    # -- looking at it ---------------------------------------------------------------------------------------
    @property
    def fake(self) -> FakeDisk:
        assert isinstance(self.disk, FakeDisk)
        return self.disk

    def names(self) -> list[str]:
        return [name for name, _ in self.disk.list_dir(self.path)]

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def segments(self) -> list[str]:
        """Names of the segment files, ascending."""
        return [name for name in self.names() if name.endswith(LOG)]

    def read(self, name: str) -> bytearray:
        return bytearray(self.fake.content(self.file(name)))

    def batches(self, name: str) -> np.ndarray:
        """The BATCH_TABLE of a segment whose batches are whole."""
        return check(self.read(name))

    def state(self) -> PartitionState:
        return PartitionState.decode(bytes(self.read(STATE_NAME)))

    # -- damaging it -----------------------------------------------------------------------------------------
    def write(self, name: str, data: bytes) -> None:
        self.fake.put(self.file(name), bytes(data))

    def change(self, name: str, edit: Callable[[bytearray], None]) -> None:
        """Rewrite a file with what `edit` makes of its content."""
        data = self.read(name)
        edit(data)
        self.write(name, data)

    def poke(self, name: str, position: int, data: bytes) -> None:
        def edit(content: bytearray) -> None:
            content[position : position + len(data)] = data

        self.change(name, edit)

    def change_batch(self, name: str, row: int, edit: Callable[[bytearray], None]) -> int:
        """Change a batch without changing its length, and make its CRC right again; returns its position."""
        at, length = int(self.batches(name)["position"][row]), int(self.batches(name)["length"][row])
        batch = self.read(name)[at : at + length]
        edit(batch)
        assert len(batch) == length
        batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
        self.poke(name, at, batch)
        return at

    def write_state(self, state: PartitionState) -> None:
        self.write(STATE_NAME, state.encode())


def closed_log() -> SampleLog:
    """Three segments, two leader epochs, a producer, all codecs; closed cleanly."""
    log = SampleLog()
    log.append(30)
    log.append(40, leader_epoch=2)
    log.close()
    assert len(log.segments()) == 3
    return log


def crashed_log() -> SampleLog:
    """The same, still open: the active segment has a recovery point, batches above it, and space reserved."""
    log = SampleLog()
    log.append(30)
    log.append(38, leader_epoch=2)
    log.checkpoint()
    log.append(6, leader_epoch=2)
    log.settle()
    assert len(log.segments()) == 3
    return log


__all__ = ["INDEX", "LOG", "SNAPSHOT", "STATE_NAME", "TIME_INDEX", "SampleLog", "closed_log", "crashed_log", "offset_name"]
