"""Who runs a data directory: one node at a time, and it can be found."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pytest

from ringlog.errors import NodeRunning
from ringlog.node import identity
from ringlog.node.identity import DataDirLock, NodeInfo, is_locked, read_info


def info(pid: int) -> NodeInfo:
    return NodeInfo(
        pid=pid,
        endpoints=["tcp://127.0.0.1:7777"],
        shards=1,
        nets=1,
        started_ms=0,
        board="b",
        stats="s",
        metrics_endpoint=None,
        processes=[],
    )


def test_two_nodes_cannot_hold_one_directory(tmp_path):
    lock = DataDirLock(str(tmp_path))
    lock.take()
    lock.write_info(info(os.getpid()))
    with pytest.raises(
        NodeRunning, match=rf"pid {os.getpid()} runs there, listening on tcp://127.0.0.1:7777"
    ):
        DataDirLock(str(tmp_path)).take()
    lock.leave()


def test_who_left_can_be_followed(tmp_path):
    for _ in range(2):
        lock = DataDirLock(str(tmp_path))
        lock.take()
        lock.write_info(info(os.getpid()))
        lock.leave()
    assert (read_info(str(tmp_path)), is_locked(str(tmp_path))) == (None, False)


def test_a_directory_is_made_for_its_owner_alone(tmp_path):
    path = str(tmp_path / "a" / "b")
    lock = DataDirLock(path)
    lock.take()
    lock.leave()
    assert os.stat(path).st_mode & 0o077 == 0


def test_the_word_of_a_node_that_is_dead_does_not_lock(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    lock = DataDirLock(str(tmp_path))
    lock.take()
    lock.write_info(info(dead.pid))
    os.close(lock._fd)
    assert not is_locked(str(tmp_path))
    again = DataDirLock(str(tmp_path))
    again.take()
    again.leave()


def test_a_lock_without_a_word_is_refused_after_some_patience(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "LEAVING_S", 0.05)
    fd = os.open(tmp_path / identity.LOCK_NAME, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(NodeRunning, match="another process holds its lock"):
        DataDirLock(str(tmp_path)).take()
    os.close(fd)


def test_a_start_that_failed_leaves_the_directory_free(tmp_path):
    lock = DataDirLock(str(tmp_path))
    lock.take()
    lock.leave()
    assert not is_locked(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": "x"}', b"\xff"])
def test_a_word_that_cannot_be_read_is_none(tmp_path, content):
    (tmp_path / identity.INFO_NAME).write_bytes(content)
    assert read_info(str(tmp_path)) is None


def test_a_word_survives_its_writing(tmp_path):
    lock = DataDirLock(str(tmp_path))
    lock.take()
    lock.write_info(info(5))
    assert read_info(str(tmp_path)) == info(5)
    lock.leave()
