"""What the commands of `ringlog cluster` do: call the library, and print what it said."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cli.clients import open_admin
from cli.counted import counted
from cli.invocation import pasteable
from cli.output import print_json
from cli.screen import print_table
from ringlog.client.moving import MOVE_BYTES_PER_S
from ringlog.model import TopicPartition

if TYPE_CHECKING:
    from ringlog.client.cluster_info import ClusterInfo, NodeInfo
    from ringlog.client.moving import Move

NAMED_MAX = 5
"""Partitions that a line names; --json names all."""
BEGUN = "The moves have begun; `ringlog cluster moves` tells how far they are."
CANCELLED = "The moves are cancelled: the replicas are what they were, in the order that they had."


def describe_cluster(bootstrap: str, *, as_json: bool) -> None:
    """Print the nodes, and what is wrong."""
    with open_admin(bootstrap) as admin:
        found = admin.describe_cluster()
    if as_json:
        print_json(_description(found))
    else:
        _print_cluster(found)


def _description(found: ClusterInfo) -> dict[str, Any]:
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller_id,
        "topics": found.topics,
        "partitions": found.partitions,
        "nodes": [
            {
                "node": node.node_id,
                "live": node.live,
                "drain": node.drain_state or None,
                "rack": node.rack,
                "leads": node.leads,
                "replicas": node.replicas,
                "in_sync": node.in_sync,
                "endpoints": node.endpoints,
            }
            for node in found.nodes
        ],
        "healthy": found.healthy,
        "under_replicated": [str(tp) for tp in found.under_replicated],
        "below_min_insync": [str(tp) for tp in found.below_min_insync],
        "offline": [str(tp) for tp in found.offline],
        "moving": [str(tp) for tp in found.moving],
        "unclean": [str(tp) for tp in found.unclean],
    }


def _print_cluster(found: ClusterInfo) -> None:
    holds = f"{counted(found.topics, 'topic')}, {counted(found.partitions, 'partition')}"
    if not found.nodes:
        print(f"node {found.node_id} at {found.endpoints[0]}, by itself, {holds}")
        return
    leader = "nobody leads" if found.controller_id < 0 else f"node {found.controller_id} leads"
    print(f"cluster {found.cluster_id}: {counted(len(found.nodes), 'node')}, {holds}; {leader} the metadata")
    print_table(
        ("NODE", "STATE", "RACK", "LEADS", "REPLICAS", "IN SYNC", "ADDRESS"),
        [
            (
                node.node_id,
                _state(node),
                node.rack or "-",
                node.leads,
                node.replicas,
                node.in_sync,
                _address(node.endpoints),
            )
            for node in found.nodes
        ],
    )
    print()
    for line in [*(_dangers(found) or ["All replicas are in sync."]), *_stuck_drains(found)]:
        print(line)


def _state(node: NodeInfo) -> str:
    """What STATE says: a node that is drained is live, unless it is said to be away."""
    words = [] if node.live else ["away"]
    return ",".join([*words, node.drain_state] if node.draining else words) or "live"


def _dangers(found: ClusterInfo) -> list[str]:
    away = [str(node.node_id) for node in found.nodes if not node.live]
    lines = []
    if found.controller_id < 0:
        lines.append(
            "Nobody leads the metadata: most nodes are away, or "
            f"node {found.node_id}, which answered, does not hear them. "
            "Who is live and in sync is what it sees; the rest was so before. Start nodes until most of them run."
        )
    if found.offline:
        lines.append(
            f"{_some(found.offline)} without a leader: start the nodes that were in sync last; "
            "`ringlog topic describe` names them."
        )
    if found.unclean:
        lines.append(f"{_some(found.unclean)} led by a replica that was not in sync: records may be lost.")
    if found.below_min_insync:
        lines.append(f"{_some(found.below_min_insync)} below min.insync.replicas: writes with acks=all wait.")
    if found.under_replicated:
        lines.append(f"{_some(found.under_replicated)} with replicas that are not in sync.")
    if away:
        lines.append(f"Away: {', '.join(away)}. What they keep is in sync again soon after they come back.")
    if found.moving:
        lines.append(f"{_some(found.moving)} being moved.")
    return lines


def _stuck_drains(found: ClusterInfo) -> list[str]:
    """Nodes that are to keep nothing, with replicas that no move takes away: for want of other nodes, mostly."""
    return [
        f"Node {node.node_id} is being drained, and {counted(node.replicas - node.leaving, 'replica')} of it "
        f"{'is' if node.replicas - node.leaving == 1 else 'are'} not being moved: "
        f"`{pasteable('cluster', 'drain', str(node.node_id))}` tries again, and says why."
        for node in found.nodes
        if node.draining and node.replicas > node.leaving
    ]


def reassign(
    bootstrap: str, topic: str, partitions: Sequence[int], replicas: Sequence[int], *, as_json: bool
) -> bool:
    """Move partitions of a topic, or call moves off; whether all of it was taken."""
    with open_admin(bootstrap) as admin:
        moves = admin.reassign({TopicPartition(topic, partition): replicas for partition in partitions})
    return _print_moves(moves, begun=bool(replicas), as_json=as_json)


def drain(bootstrap: str, node_id: int, *, undo: bool, as_json: bool) -> bool:
    """Move everything off a node, or stop doing so; whether all of it was taken."""
    with open_admin(bootstrap) as admin:
        moves = admin.drain_node(node_id, undo=undo)
    if not moves and not as_json:
        print(f"Node {node_id} may have replicas again." if undo else f"Node {node_id} has no replicas.")
    all_taken = _print_moves(moves, begun=not undo, as_json=as_json)
    if not all_taken and not undo:
        again = pasteable("cluster", "drain", str(node_id))
        stay = _some([move.partition for move in moves if move.error])
        print(
            f"ringlog: {stay} cannot leave node {node_id}, which gets "
            f"no new replicas all the same. Make room and run `{again}` again, or take it back with --undo.",
            file=sys.stderr,
        )
    return all_taken


def remove(bootstrap: str, node_id: int, *, as_json: bool) -> None:
    """Take a node out of the cluster."""
    with open_admin(bootstrap) as admin:
        admin.remove_node(node_id)
    if as_json:
        print_json({"removed": node_id})
    else:
        print(
            f"Node {node_id} is no part of the cluster any more. Leave it out of --cluster at the next restart."
        )


def show_moves(bootstrap: str, *, as_json: bool) -> None:
    """Print what is under way: as JSON, one object for each partition."""
    with open_admin(bootstrap) as admin:
        found = admin.list_moves()
        bound = None if as_json else admin.alter_cluster().get(MOVE_BYTES_PER_S)
    if as_json:
        for move in found:
            print_json(
                {
                    "partition": str(move.partition),
                    "adding": move.adding,
                    "removing": move.removing,
                    "moved_bytes": move.moved_bytes,
                    "total_bytes": move.total_bytes,
                    "percent": round(move.percent, 1),
                }
            )
        return
    if not found:
        print("Nothing is being moved.")
        return
    print_table(
        ("PARTITION", "TO", "FROM", "MB", "OF MB", "%"),
        [
            (
                str(move.partition),
                _ids(move.adding),
                _ids(move.removing),
                f"{move.moved_bytes / 1e6:,.1f}",
                f"{move.total_bytes / 1e6:,.1f}",
                f"{move.percent:.1f}",
            )
            for move in found
        ],
    )
    if bound is not None:
        print(f"\nNo more than {int(bound) / 1e6:,.2f} MB/s to each node.")


def throttle(bootstrap: str, bytes_per_s: int | None, *, change: bool, as_json: bool) -> None:
    """Bound the moves to each node, or do so no more; print what holds then."""
    with open_admin(bootstrap) as admin:
        settings = admin.alter_cluster({MOVE_BYTES_PER_S: bytes_per_s} if change else {})
    bound = settings.get(MOVE_BYTES_PER_S)
    if as_json:
        print_json({"move_bytes_per_s": None if bound is None else int(bound)})
    elif bound is None:
        print("Moves are not throttled.")
    else:
        print(f"Moves take no more than {int(bound) / 1e6:,.2f} MB/s to each node.")


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "-"


def _print_moves(moves: Sequence[Move], *, begun: bool, as_json: bool) -> bool:
    """Say what became of each move that was asked for, or (not `begun`) called off; whether all of it was taken."""
    for move in moves:
        if as_json:
            print_json(
                {
                    "partition": str(move.partition),
                    "replicas": move.replicas,
                    "error": move.error,
                    "message": move.message,
                }
            )
        elif move.error:
            stays = " stays" if begun else ""
            print(f"{move.partition}{stays}: {move.message} ({move.error})")
        elif begun:
            print(f"{move.partition} is going to be on {', '.join(map(str, move.replicas))}.")
        else:
            print(f"{move.partition} stays on {', '.join(map(str, move.replicas))}.")
    if any(not move.error for move in moves) and not as_json:
        print(BEGUN if begun else CANCELLED)
    return not any(move.error for move in moves)


def _some(partitions: Sequence[TopicPartition]) -> str:
    names = ", ".join(str(tp) for tp in partitions[:NAMED_MAX])
    more = f" and {len(partitions) - NAMED_MAX:,} more" if len(partitions) > NAMED_MAX else ""
    return f"{counted(len(partitions), 'partition')} ({names}{more})"


def _address(endpoints: Sequence[str]) -> str:
    """What to give to --bootstrap; the ipc:// endpoints are found by clients themselves."""
    far = [endpoint.removeprefix("tcp://") for endpoint in endpoints if endpoint.startswith("tcp://")]
    return far[0] if far else "-"
