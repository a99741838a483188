"""A throw-away node: how it ends, and who may end it."""

from __future__ import annotations

import os

import pytest

import ringlog
from ringlog.errors import NodeFailed


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
