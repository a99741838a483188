"""C3 finds every planted leak, and nothing when all is tidy."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringlog.ring.shm import SharedMemory
from tests.support.checkers.leaks import LeakWatch
from tests.support.checkers.violations import Rule

HOLDER = """
import os, socket, subprocess, sys
from ringlog.ring.shm import SharedMemory
shared = SharedMemory.create("leaktest", 4096)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1] + "/listen.sock")
listener.listen()
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=sys.stdin, cwd="/")
print(shared.name, child.pid, flush=True)
sys.stdin.read()
if sys.argv[2] == "tidy":
    shared.unlink()
    os.unlink(sys.argv[1] + "/listen.sock")
    child.wait()
"""


@contextmanager
def holder(watch: LeakWatch, tmp_path: Path, manner: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """A process with shared memory, a socket and a child; ends when its input does. Yields the memory's path."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), manner],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ".", **watch.environment()},
    )
    assert process.stdin and process.stdout
    name, _ = process.stdout.readline().split()
    path = f"/dev/shm{name.decode()}"
    try:
        yield process, path
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
        if os.path.exists(path):
            os.unlink(path)


def rules(watch: LeakWatch, within_s: float = 0.0) -> set[Rule]:
    return {violation.rule for violation in watch.leaks(within_s)}


def test_a_tidy_end_leaves_nothing(tmp_path: Path):
    watch = LeakWatch(str(tmp_path))
    with holder(watch, tmp_path, "tidy") as (process, path):
        watch.observe()
        assert watch.shared_memory == {path} == watch.held_shared_memory()
        assert watch.socket_files == {f"{tmp_path}/listen.sock"}
        assert len(watch.processes()) == 2
        process.stdin.close()
        process.wait()
        assert watch.leaks(within_s=5) == []


def test_leaked_shared_memory_and_a_leaked_socket_are_found(tmp_path: Path):
    watch = LeakWatch(str(tmp_path))
    with (
        holder(watch, tmp_path, "untidy") as (process, path),
        SharedMemory.open(path.removeprefix("/dev/shm")),
    ):
        # Opened here too: a node that another test starts meanwhile must not sweep it away.
        watch.observe()
        process.stdin.close()
        process.wait()
        assert rules(watch, within_s=1) == {Rule.SHARED_MEMORY, Rule.SOCKET}


def test_a_process_that_outlives_its_killed_parent_is_found(tmp_path: Path):
    watch = LeakWatch(str(tmp_path))
    with holder(watch, tmp_path, "untidy") as (process, _):
        watch.observe()
        process.kill()
        process.wait()
        found = [violation for violation in watch.leaks() if violation.rule is Rule.PROCESS]
        assert len(found) == 1
        assert "sys.stdin.read()" in found[0].found


def test_a_process_is_found_from_the_moment_it_was_started(tmp_path: Path):
    """The kernel hides its environment while it loads the program: nine times in ten, right after the start."""
    watch = LeakWatch(str(tmp_path))
    for _ in range(10):
        with subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, env=os.environ | watch.environment()
        ) as process:
            assert watch.is_marked(process.pid)


def test_a_socket_file_in_the_data_directory_is_found_though_nobody_saw_who_made_it(tmp_path: Path):
    watch = LeakWatch(str(tmp_path))
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "run" / "node.sock"))
    assert rules(watch) == {Rule.SOCKET}


def test_a_temporary_file_is_found(tmp_path: Path):
    watch = LeakWatch(str(tmp_path))
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "partition.state.tmp").write_bytes(b"")
    assert rules(watch) == {Rule.TEMP_FILE}


def test_what_other_nodes_hold_is_not_taken_for_a_leak(tmp_path: Path):
    watch, other = LeakWatch(str(tmp_path / "mine")), LeakWatch(str(tmp_path))
    with SharedMemory.create("leaktest", 4096) as mine, holder(other, tmp_path, "untidy"):
        watch.observe()
        assert watch.leaks() == []
        mine.unlink()
