"""Whose data directory it is: of a node by itself, or of one node of one cluster. Neither is taken for the other."""

from __future__ import annotations

import os

from ringlog.config import NodeConfig
from ringlog.errors import ClusterMismatch
from ringlog.log.names import partition_dir
from ringlog.node.metadata_log import METADATA_PARTITION
from ringlog.node.quorum_store import QUORUM_FILE, look


def require_belongs(config: NodeConfig) -> None:
    """Raise ClusterMismatch when the directory was made for another node than the one that is to run on it."""
    data_dir = config.data_dir
    alone = os.path.exists(partition_dir(data_dir, METADATA_PARTITION))
    if config.cluster and alone:
        raise ClusterMismatch(
            f"{data_dir} is that of a node by itself, and its topics would not be those of the cluster. "
            "Use another --data-dir for the node of the cluster"
        )
    owner = look(data_dir)
    if owner is None:
        return
    whose = f"{data_dir} is that of node {owner.node_id}"
    if owner.cluster_id:
        whose += f" of cluster {owner.cluster_id}"
    if not config.cluster:
        raise ClusterMismatch(
            f"{whose}. Start it with --node-id {owner.node_id} and --cluster, or use another --data-dir. "
            f"({QUORUM_FILE} in it says so)"
        )
    if owner.node_id != config.node_id:
        raise ClusterMismatch(f"{whose}, not {config.node_id}: use another --data-dir or --node-id")
    if not set(owner.voters) <= set(config.cluster_members):
        raise ClusterMismatch(
            f"{whose} with the nodes {', '.join(map(str, owner.voters))}, and --cluster names "
            f"{', '.join(map(str, sorted(config.cluster_members)))}. Name all of those: a node leaves by "
            "`ringlog cluster remove`. More may be named, and join"
        )
