"""The supervisor refuses a configuration that no node could keep to, and leaves nothing of what it cannot start."""

from __future__ import annotations

import os
import re
import socket

import pytest

from ringlog.config import NodeConfig
from ringlog.errors import InvalidRequest, NodeFailed
from ringlog.node import supervisor as module
from ringlog.node.supervisor import Supervisor

HOST = "127.0.77.1"
"""An address of this host that no other test uses: the port beside one that is free is free, too."""


def test_defaults_that_ask_a_node_by_itself_for_two_replicas_in_sync_are_refused(tmp_path):
    config = NodeConfig(data_dir=str(tmp_path / "data"), topic_defaults={"min.insync.replicas": 2})
    with pytest.raises(InvalidRequest, match=r"min\.insync\.replicas=2 with 1 replica"):
        Supervisor(config)
    assert not os.path.exists(tmp_path / "data")


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("listen", "--listen"),
        ("metrics_listen", "--metrics-listen"),
        ("cluster", "--cluster"),
        ("peer", "--cluster"),
    ],
)
def test_a_port_that_is_taken_is_found_before_anything_is_made(tmp_path, setting, option):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = {
            "listen": {"listen": f"tcp://{HOST}:{port}"},
            "metrics_listen": {"listen": f"tcp://{HOST}:0", "metrics_listen": f"{HOST}:{port}"},
            "cluster": {"listen": f"tcp://{HOST}:0", "cluster": f"1@{HOST}:{port}", "node_id": 1},
            "peer": {"listen": f"tcp://{HOST}:0", "cluster": f"1@{HOST}:{port - 1}", "node_id": 1},
        }[setting]
        config = NodeConfig(data_dir=str(tmp_path / "new" / "data"), **settings)
        with pytest.raises(
            NodeFailed, match=rf"{re.escape(HOST)}:{port}: Address already in use.*with {option}"
        ):
            Supervisor(config).run()
    assert os.listdir(tmp_path) == []


def test_a_start_that_shared_memory_is_too_small_for_leaves_nothing(tmp_path, monkeypatch):
    def too_small(*_: object) -> None:
        raise NodeFailed("too small")

    monkeypatch.setattr(module, "NodeMemory", too_small)
    with pytest.raises(NodeFailed, match="too small"):
        Supervisor(NodeConfig(data_dir=str(tmp_path / "data"), listen="tcp://127.0.0.1:0")).run()
    assert os.listdir(tmp_path) == []
