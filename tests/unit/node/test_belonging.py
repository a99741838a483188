"""A data directory stays with its node and its cluster: every mix-up is refused, and the sentence says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringlog.config import NodeConfig
from ringlog.consensus.messages import Voter
from ringlog.errors import ClusterMismatch
from ringlog.node.belonging import require_belongs
from ringlog.node.quorum_store import QUORUM_FILE, QuorumStore

THREE = "1@127.0.0.1:9410,2@127.0.0.1:9420,3@127.0.0.1:9430"


def config(folder: Path, node_id: int = 1, cluster: str = THREE) -> NodeConfig:
    return NodeConfig(data_dir=str(folder), node_id=node_id if cluster else 0, cluster=cluster)


def joined(folder: Path) -> Path:
    """The directory of node 1 of a cluster."""
    store = QuorumStore(str(folder), 1, tuple(Voter(node, "") for node in (1, 2, 3)))
    store.join("c1u57e7")
    store.close()
    return folder


def test_a_new_directory_is_anybodys(tmp_path: Path):
    require_belongs(config(tmp_path))
    require_belongs(config(tmp_path, cluster=""))
    require_belongs(config(tmp_path / "not-there"))


def test_a_node_finds_its_own_directory_also_at_other_addresses(tmp_path: Path):
    joined(tmp_path)
    require_belongs(config(tmp_path))
    require_belongs(config(tmp_path, cluster="1@127.0.0.1:1000,2@127.0.0.1:1010,3@127.0.0.1:1020"))


def test_a_node_of_a_cluster_does_not_start_by_itself(tmp_path: Path):
    with pytest.raises(ClusterMismatch, match=r"node 1 of cluster c1u57e7\. Start it with --node-id 1"):
        require_belongs(config(joined(tmp_path), cluster=""))


def test_a_node_by_itself_does_not_join_with_its_topics(tmp_path: Path):
    (tmp_path / "__cluster_metadata-0").mkdir()
    require_belongs(config(tmp_path, cluster=""))
    with pytest.raises(ClusterMismatch, match="a node by itself"):
        require_belongs(config(tmp_path))


def test_another_node_does_not_take_the_directory(tmp_path: Path):
    with pytest.raises(ClusterMismatch, match="node 1 of cluster c1u57e7, not 2"):
        require_belongs(config(joined(tmp_path), node_id=2))


def test_the_nodes_of_a_cluster_are_always_the_same(tmp_path: Path):
    joined(tmp_path)
    with pytest.raises(ClusterMismatch, match="with the nodes 1, 2, 3, and --cluster names 1, 2"):
        require_belongs(config(tmp_path, cluster="1@127.0.0.1:9410,2@127.0.0.1:9420"))


def test_a_file_that_cannot_tell_keeps_nobody_out(tmp_path: Path):
    (tmp_path / QUORUM_FILE).write_bytes(b"noise" * 100)
    require_belongs(config(tmp_path))
