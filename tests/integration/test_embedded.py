"""A throw-away node: how it ends, and who may end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

import ringlog
from ringlog.errors import InvalidRequest, NodeFailed
from tests.support.node import wait_for
from tests.support.patience import stretched


def test_a_child_of_a_fork_that_leaves_the_block_ends_nothing():
    block = ringlog.embedded()
    with block as node:
        pid = os.fork()
        if pid == 0:
            try:
                block.__exit__(None, None, None)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert os.path.isdir(node.data_dir)
        with ringlog.Producer(node.bootstrap) as producer:
            assert producer.produce("t", b"still there").result(10).durability == "flushed"
    assert not os.path.exists(node.data_dir)


def test_a_node_that_does_not_start_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(NodeFailed, match=r"nowhere\.toml"), ringlog.embedded(config="nowhere.toml"):
        raise AssertionError("there is no node")
    assert list(tmp_path.iterdir()) == []


def test_a_node_outlives_the_thread_that_started_it():
    block = ringlog.embedded()
    started = []
    thread = threading.Thread(target=lambda: started.append(block.__enter__()))
    thread.start()
    thread.join()
    try:
        with pytest.raises(psutil.TimeoutExpired):
            psutil.Process(started[0].pid).wait(1)  # the kernel would have told it at once
        with ringlog.Producer(started[0].bootstrap) as producer:
            assert producer.produce("t", b"still there").result(10).durability == "flushed"
    finally:
        block.__exit__(None, None, None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_is_killed_leaves_neither_its_node_nor_its_files(tmp_path, number):
    code = "import ringlog\nwith ringlog.embedded() as node: print(node.pid, flush=True); input()"
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert len(list(tmp_path.iterdir())) == 1
        program.send_signal(number)
    wait_for("the end of the node", lambda: not psutil.pid_exists(pid), stretched(30.0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shards": "x"}, "shards must be an int, not 'x'"),
        ({"tail_bytes_per_shard": 1.5}, "tail_bytes_per_shard must be an int, not 1.5"),
        ({"data_dir": 5}, "data_dir must be a path, as str or Path, not 5"),
        ({"config": 7}, "config must be a path, as str or Path, not 7"),
    ],
    ids=str,
)
def test_settings_of_a_wrong_type_are_refused_in_a_sentence(given, said):
    with pytest.raises(InvalidRequest, match=said), ringlog.embedded(**given):
        pass


def test_paths_may_be_paths(tmp_path):
    with ringlog.embedded(data_dir=tmp_path / "data") as node:
        assert node.data_dir == str(tmp_path / "data")
