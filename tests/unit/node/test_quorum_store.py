"""The file of a voter: what was saved is there again, a torn write is cut, and a disk that forgot is not believed."""

from __future__ import annotations

import errno
import os
import random
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringlog.consensus.messages import Entry, HardState, Snapshot, Voter
from ringlog.consensus.saving import Restored, Save
from ringlog.errors import InvalidRequest, InvariantBroken
from ringlog.node.quorum_store import QUORUM_FILE, QuorumStore

VOTERS = (Voter(1, ""), Voter(2, ""), Voter(3, ""))


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A folder that a flush costs nothing in: for tests that open the file for each of its bytes."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def open_store(folder: Path, node_id: int = 1) -> QuorumStore:
    return QuorumStore(str(folder), node_id, VOTERS)


def entry(index: int, epoch: int, data: bytes = b"x" * 20) -> Entry:
    return Entry(index, epoch, "data", data)


def saves() -> list[Save]:
    return [
        Save(1, HardState(1, Voter(2, "b")), None, ()),
        Save(2, None, None, (entry(1, 1), entry(2, 1))),
        Save(3, HardState(2), None, (entry(2, 2), entry(3, 2))),
        Save(4, None, None, (entry(4, 2),)),
    ]


def after_saves(folder: Path) -> list[tuple[int, Restored]]:
    """Save everything; what a restart must find after each save, and how long the file was then."""
    store = open_store(folder)
    path = folder / QUORUM_FILE
    states = [(path.stat().st_size, store.restored())]
    for save in saves():
        store.save(save)
        states.append((path.stat().st_size, store.restored()))
    store.close()
    return states


def test_everything_saved_is_there_again(tmp_path: Path):
    states = after_saves(tmp_path)
    again = open_store(tmp_path)
    assert again.restored() == states[-1][1]
    assert again.restored().hard_state == HardState(2)
    assert [(e.index, e.epoch) for e in again.restored().entries] == [(1, 1), (2, 2), (3, 2), (4, 2)]


def test_a_vote_is_flushed_before_save_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = open_store(tmp_path)
    flushed: list[int] = []
    path = tmp_path / QUORUM_FILE
    monkeypatch.setattr("os.fdatasync", lambda fd: flushed.append(path.stat().st_size))
    store.save(saves()[0])
    assert flushed == [path.stat().st_size]


class PageCache:
    """What a kernel makes of flushes: one that fails leaves its pages in memory, readable and taken for clean, so that
    no later flush of the same file writes them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = False
        self._durable: dict[int, bytes] = {}
        self._lost: dict[int, tuple[int, int]] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(f"os.{name}", self._flush)

    def _flush(self, fd: int) -> None:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            return
        if self.fails:
            self._lost[found.st_ino] = len(self._durable.get(found.st_ino, b"")), found.st_size
            raise OSError(errno.EIO, "the device did not take it")
        data = bytearray(Path(f"/proc/self/fd/{fd}").read_bytes())
        start, end = self._lost.get(found.st_ino, (0, 0))
        data[start:end] = bytes(end - start)
        self._durable[found.st_ino] = bytes(data)

    def lose_power(self, path: Path) -> None:
        path.write_bytes(self._durable[path.stat().st_ino])


def test_what_a_failed_flush_left_in_memory_is_not_believed_before_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache = PageCache(monkeypatch)
    first, second, third, _ = saves()
    store = open_store(tmp_path)
    store.save(first)
    cache.fails = True
    with pytest.raises(OSError, match="did not take it"):
        store.save(second)
    cache.fails = False
    with pytest.raises(InvariantBroken, match="a file whose write failed takes nothing more"):
        store.save(third)
    store.close()
    again = open_store(tmp_path)
    again.save(Save(3, HardState(4), None, ()))
    believed = again.restored()
    again.close()
    cache.lose_power(tmp_path / QUORUM_FILE)
    assert open_store(tmp_path).restored() == believed
    assert believed.hard_state == HardState(4)


def test_a_torn_write_is_cut_at_every_byte_and_nothing_before_it_is_lost(memory_path: Path):
    states = after_saves(memory_path)
    path = memory_path / QUORUM_FILE
    data = path.read_bytes()
    disk_id = open_store(memory_path).me.disk_id
    for end in range(states[0][0], len(data)):
        path.write_bytes(data[:end])
        store = open_store(memory_path)
        expected = [state for size, state in states if size <= end][-1]
        assert store.restored() == expected
        assert store.me.disk_id == disk_id
        store.save(Save(9, HardState(9), None, ()))
        store.close()
        again = open_store(memory_path)
        assert again.restored().hard_state == HardState(9), "and it goes on from there"
        again.close()


def test_a_disk_that_forgot_something_is_another_disk(memory_path: Path):
    states = after_saves(memory_path)
    path = memory_path / QUORUM_FILE
    data = path.read_bytes()
    disk_id = open_store(memory_path).me.disk_id
    last_save_at = states[-2][0]
    for at in random.Random(7).sample(range(last_save_at), 60):
        spoiled = bytearray(data)
        spoiled[at] ^= 1 << (at % 8)
        path.write_bytes(spoiled)
        store = open_store(memory_path)
        assert store.me.disk_id != disk_id, f"byte {at}"
        assert store.restored() == Restored(HardState(), Snapshot(0, 0, VOTERS, b""), ())
        store.close()
    assert len(list(memory_path.glob("*.bad"))) == 60, "nothing is deleted"


def test_a_snapshot_replaces_the_file_and_a_crash_before_the_rename_does_not_matter(tmp_path: Path):
    after_saves(tmp_path)
    store = open_store(tmp_path)
    before_bytes = store.file_bytes
    snapshot = Snapshot(3, 2, VOTERS, b"state")
    store.save(Save(5, None, snapshot, (entry(4, 2),)))
    assert store.file_bytes < before_bytes
    store.save(Save(6, None, None, (entry(5, 2),)))
    store.close()
    (tmp_path / (QUORUM_FILE + ".tmp")).write_bytes(b"half a")
    again = open_store(tmp_path)
    assert again.restored() == Restored(HardState(2), snapshot, (entry(4, 2), entry(5, 2)))


def test_a_node_keeps_its_id_and_its_cluster(tmp_path: Path):
    store = open_store(tmp_path)
    disk_id = store.me.disk_id
    store.join("abc")
    store.close()
    again = open_store(tmp_path)
    assert (again.me, again.cluster_id) == (Voter(1, disk_id), "abc")
    with pytest.raises(InvalidRequest, match="belongs to node 1"):
        open_store(tmp_path, node_id=2)
