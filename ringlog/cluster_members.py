"""The nodes of a cluster as a node is told them: `1@host:port,2@host:port,3@host:port`. Pure."""

from __future__ import annotations

import re

from ringlog.errors import InvalidRequest
from ringlog.limits import CLUSTER_NODES_MAX, NODE_ID_MAX

_MEMBER = re.compile(r"\s*([0-9]{1,9})@([^\s@,]+):([0-9]{1,5})\s*")


def parse_members(text: str) -> dict[int, str]:
    """Where the controller of each node listens, by the node's id; empty for a node by itself.

    >>> parse_members("1@10.0.0.1:9410,2@10.0.0.2:9410")
    {1: 'tcp://10.0.0.1:9410', 2: 'tcp://10.0.0.2:9410'}
    """
    members: dict[int, str] = {}
    taken: dict[tuple[str, int], int] = {}
    for part in text.split(",") if text else []:
        found = _MEMBER.fullmatch(part)
        if not found or not 1 <= int(found[3]) <= 65534 or not 1 <= int(found[1]) <= NODE_ID_MAX:
            raise InvalidRequest(
                f"cluster={text!r}: {part.strip()!r} is no node. Use ID@HOST:PORT for each, such as "
                f"1@10.0.0.1:9410,2@10.0.0.2:9410, with ids from 1 to {NODE_ID_MAX} and ports from 1 to 65534"
            )
        node_id, host, port = int(found[1]), found[2], int(found[3])
        if node_id in members:
            raise InvalidRequest(
                f"cluster={text!r}: node {node_id} is named twice. Give each node its own id"
            )
        for one in (port, port + 1):
            other = taken.setdefault((host, one), node_id)
            if other != node_id:
                raise InvalidRequest(
                    f"cluster={text!r}: nodes {other} and {node_id} both need port {one} of {host}. Each takes its own "
                    "and the one after it: leave a port between them"
                )
        members[node_id] = f"tcp://{host}:{port}"
    if len(members) > CLUSTER_NODES_MAX:
        raise InvalidRequest(f"cluster: {len(members)} nodes; at most {CLUSTER_NODES_MAX} vote in one quorum")
    return members


def next_port(endpoint: str) -> str:
    """The address one port above.

    >>> next_port("tcp://10.0.0.1:9410")
    'tcp://10.0.0.1:9411'
    """
    host, _, port = endpoint.rpartition(":")
    return f"{host}:{int(port) + 1}"
