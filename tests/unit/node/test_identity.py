"""Who runs a data directory: one node at a time, and it can be found."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from ringlog.errors import NodeRunning, NodeUnavailable
from ringlog.node import control, identity
from ringlog.node.identity import DataDirLock, NodeInfo, is_locked, read_info
from ringlog.node.metrics import NodeView
from ringlog.node.quorum_store import QUORUM_FILE


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


def test_who_starts_can_be_found_before_it_has_said_anything(tmp_path):
    path = str(tmp_path)
    assert identity.holder_pid(path) is None
    lock = DataDirLock(path)
    lock.take()
    assert (identity.holder_pid(path), read_info(path)) == (os.getpid(), None)
    with pytest.raises(NodeRunning, match=f"node with pid {os.getpid()} is starting there"):
        DataDirLock(path).take()
    with pytest.raises(NodeUnavailable, match=rf"\(pid {os.getpid()}\) is starting"):
        NodeView(path)
    (tmp_path / QUORUM_FILE).touch()
    with pytest.raises(
        NodeUnavailable, match="is starting: in a cluster it waits until most of its nodes run"
    ):
        NodeView(path)
    lock.leave()
    assert identity.holder_pid(path) is None


def test_the_word_of_a_node_that_died_is_not_taken_for_that_of_the_next(tmp_path):
    """Its pid may be another program's by now."""
    dead = DataDirLock(str(tmp_path))
    dead.take()
    dead.write_info(info(1))
    os.close(dead._fd)
    lock = DataDirLock(str(tmp_path))
    lock.take()
    assert read_info(str(tmp_path)) is None
    lock.leave()


def test_a_node_that_starts_is_stopped_like_any_other(tmp_path):
    code = f"from ringlog.node.identity import DataDirLock; DataDirLock({str(tmp_path)!r}).take()"
    starting = subprocess.Popen(
        [sys.executable, "-c", f"{code}; print('held', flush=True); import time; time.sleep(60)"],
        stdout=subprocess.PIPE,
    )
    assert starting.stdout is not None and starting.stdout.readline() == b"held\n"
    assert control.stop(str(tmp_path), 30) == starting.pid
    assert starting.wait(30) == -signal.SIGTERM
    starting.stdout.close()
    with pytest.raises(NodeUnavailable, match="no node runs on"):
        control.stop(str(tmp_path))


def test_a_node_of_a_version_whose_lock_says_nothing_is_found_by_its_word(tmp_path):
    lock = DataDirLock(str(tmp_path))
    lock.take()
    os.ftruncate(lock._fd, 0)
    lock.write_info(info(os.getpid()))
    assert identity.holder_pid(str(tmp_path)) == os.getpid()
    with pytest.raises(NodeRunning, match=rf"pid {os.getpid()} runs there"):
        DataDirLock(str(tmp_path)).take()
    lock.leave()


def test_a_refused_start_leaves_what_was_there_before_and_nothing_more(tmp_path):
    new, there = tmp_path / "a" / "b", tmp_path / "there"
    there.mkdir()
    (there / "file").write_bytes(b"mine")
    for path in (new, there):
        lock = DataDirLock(str(path))
        lock.take()
        lock.abandon()
    assert sorted(os.listdir(tmp_path)) == ["there"]
    assert os.listdir(there) == ["file"]


def test_a_lock_that_was_taken_away_by_a_refused_start_holds_nobody_and_is_held_by_nobody(
    tmp_path, monkeypatch
):
    """Between opening the file and locking it, the start that had made it is refused."""
    refused, second = DataDirLock(str(tmp_path)), DataDirLock(str(tmp_path))
    refused.take()
    flock, left = fcntl.flock, []

    def leave_first(fd: int, how: int) -> None:
        if not left:
            left.append(refused)
            refused.abandon()
        flock(fd, how)

    monkeypatch.setattr(identity.fcntl, "flock", leave_first)
    second.take()
    assert is_locked(str(tmp_path)), "the file that others find is the one that is held"
    second.leave()


def test_a_stop_finds_a_node_that_takes_its_directory_a_moment_later(tmp_path):
    take = f"DataDirLock({str(tmp_path)!r}).take()"
    code = f"import time; from ringlog.node.identity import DataDirLock; print(flush=True); time.sleep(0.1); {take}"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; time.sleep(60)"], stdout=subprocess.PIPE
    ) as starting:
        assert starting.stdout is not None and starting.stdout.readline() == b"\n"
        try:
            assert control.stop(str(tmp_path), 30) == starting.pid
        finally:
            starting.kill()


def test_a_node_that_left_is_not_taken_for_the_next_one_that_locks_its_directory(tmp_path):
    lock = DataDirLock(str(tmp_path))
    lock.take()
    lock.leave()
    assert (tmp_path / identity.LOCK_NAME).read_bytes() == b""


def test_who_would_start_a_node_of_a_cluster_is_told_what_it_takes(tmp_path):
    with pytest.raises(NodeUnavailable, match="Start one with `ringlog start --data-dir"):
        NodeView(str(tmp_path))
    (tmp_path / QUORUM_FILE).touch()
    with pytest.raises(NodeUnavailable, match="start it with its --node-id and --cluster"):
        NodeView(str(tmp_path))
