"""What a node waits for while nobody leads the metadata, in words. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def missing_majority(
    node_id: int,
    cluster_id: str,
    members: Mapping[int, str],
    *,
    connected: Collection[int],
    heard: Collection[int],
) -> str:
    """Who of the others is not there, or is and does not speak to this node. `members`: where each is said to listen.

    >>> members = {1: "tcp://a:9410", 2: "tcp://b:9410", 3: "tcp://c:9410"}
    >>> print(missing_majority(1, "f00d", members, connected=[3], heard=[]))
    node 1 waits for most of its 3 nodes. Not reached: node 2 (tcp://b:9410). Reached, and silent to this node: node 3 \
(tcp://c:9410): it may be of another cluster than f00d, or know node 1 by another address. Compare --cluster there and \
here, and --data-dir
    """
    others = [other for other in sorted(members) if other != node_id and other not in heard]
    away = [f"node {other} ({members[other]})" for other in others if other not in connected]
    silent = [f"node {other} ({members[other]})" for other in others if other in connected]
    said = f"node {node_id} waits for most of its {len(members)} nodes"
    if away:
        said += f". Not reached: {', '.join(away)}"
    if silent:
        which = f"another cluster than {cluster_id}" if cluster_id else "another cluster"
        said += (
            f". Reached, and silent to this node: {', '.join(silent)}: it may be of {which}, or know node {node_id} by "
            "another address. Compare --cluster there and here, and --data-dir"
        )
    return said
