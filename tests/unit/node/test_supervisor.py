"""The supervisor refuses a configuration that no node could keep to, before anything is made."""

from __future__ import annotations

import os

import pytest

from ringlog.config import NodeConfig
from ringlog.errors import InvalidRequest
from ringlog.node.supervisor import Supervisor


def test_defaults_that_ask_a_node_by_itself_for_two_replicas_in_sync_are_refused(tmp_path):
    config = NodeConfig(data_dir=str(tmp_path / "data"), topic_defaults={"min.insync.replicas": 2})
    with pytest.raises(InvalidRequest, match=r"min\.insync\.replicas=2 with 1 replica"):
        Supervisor(config)
    assert not os.path.exists(tmp_path / "data")
