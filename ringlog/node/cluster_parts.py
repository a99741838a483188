"""The parts of the controller process on a node of a cluster, and what the node tells the others of itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from ringlog.cluster_members import next_port
from ringlog.config import NodeConfig
from ringlog.consensus.messages import Voter
from ringlog.controller.topic_config import node_defaults, with_defaults
from ringlog.net.cluster_messages import RegisterBrokerRequest
from ringlog.net.host import host_id
from ringlog.node.broker_session import BrokerSession
from ringlog.node.cluster_agent import ClusterAgent
from ringlog.node.cluster_controller import ClusterController
from ringlog.node.quorum_store import QuorumStore
from ringlog.ring.board import Board, Links
from ringlog.ring.stats import Stats


class NodeLife(msgspec.Struct, frozen=True):
    """One run of a node, from its start to its stop: the same for all processes that serve it meanwhile."""

    incarnation: str
    clean_stop: bool
    """The run before it ended in order."""


def cluster_agent(
    process: int,
    config: NodeConfig,
    life: NodeLife,
    endpoints: Sequence[Sequence[str]],
    board: Board,
    links: Links,
    stats: Stats,
    stopping: Callable[[], bool],
) -> ClusterAgent:
    """The controller process of a node in a cluster; `endpoints`: where each network process listens."""
    members, topic_defaults = config.cluster_members, node_defaults(config.topic_defaults)
    store = QuorumStore(
        config.data_dir, config.node_id, tuple(Voter(member, "") for member in sorted(members))
    )
    controller = ClusterController(
        store,
        members,
        now_ms=lambda: time.monotonic() * 1000,
        default_partitions=config.default_partitions,
        ports={member: (endpoint, next_port(endpoint)) for member, endpoint in members.items()},
        topic_defaults=topic_defaults,
    )
    registration = RegisterBrokerRequest(
        config.node_id,
        life.incarnation,
        store.me.disk_id,
        advertised(config, endpoints),
        config.peer_listen,
        config.rack,
        config.shard_count,
        life.clean_stop,
        host_id(),
        with_defaults({}, topic_defaults)["flush"],
    )
    session = BrokerSession(registration)
    return ClusterAgent(process, config, board, links, controller, session, stats, stopping)


def advertised(config: NodeConfig, endpoints: Sequence[Sequence[str]]) -> list[str]:
    """Where clients reach the node: from other hosts first, then on this one.

    >>> config = NodeConfig(data_dir="/x", node_id=1, cluster="1@127.0.0.1:9410", advertise="tcp://log-1:9400")
    >>> advertised(config, [["tcp://127.0.0.1:9400", "ipc:///x/net.sock"]])
    ['tcp://log-1:9400', 'ipc:///x/net.sock']
    """
    near = [one for of_net in endpoints for one in of_net if not one.startswith("tcp://")]
    far = [one for of_net in endpoints for one in of_net if one.startswith("tcp://")]
    if config.advertise:
        host, _, port = config.advertise.rpartition(":")
        far = [f"{host}:{int(port) + net}" for net in range(len(far))]
    return [*far, *near]
