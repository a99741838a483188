"""`ringlog cluster`: the nodes of a cluster, how they are, and what each keeps."""

from __future__ import annotations

import sys

import click

from cli.lazy import HelpfulGroup
from cli.options import client_options, group_options


@click.group(cls=HelpfulGroup)
@group_options
def cluster() -> None:
    """Look at the nodes of a cluster, and move replicas between them.

    \b
    Examples:
      ringlog cluster describe
      ringlog cluster describe --bootstrap db1:9400,db2:9400 --json
      ringlog cluster drain 3
      ringlog cluster moves
    """


@cluster.command()
@client_options
def describe(bootstrap: str, as_json: bool) -> None:
    """Show the nodes, what each leads and keeps, and which partitions are in danger.

    Any living node answers. A partition is in danger when one of its replicas is not in sync, when fewer are than
    min.insync.replicas asks for (writes with acks=all wait), or when nobody leads it.

    A node is live, or away (silent, or not yet caught up). One that `ringlog cluster drain` named is draining while it
    has replicas, and drained when it has none; "drain" with --json.

    \b
    Examples:
      ringlog cluster describe
      ringlog cluster describe --json | jq .offline
    """
    from cli.cluster_calls import describe_cluster

    describe_cluster(bootstrap, as_json=as_json)


@cluster.command()
@click.argument("topic")
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    required=True,
    help="Which; may be repeated.",
)
@click.option(
    "--replicas", "-r", metavar="IDS", help="Nodes, such as 2,3,1; the first is preferred as leader."
)
@click.option("--cancel", is_flag=True, help="Call off a move that is under way.")
@client_options
def reassign(
    topic: str, partitions: tuple[int, ...], replicas: str | None, cancel: bool, bootstrap: str, as_json: bool
) -> None:
    """Move partitions to other nodes.

    New replicas are made first; the old ones go when the new ones are in sync. Until then it can be called off, unless
    fewer than min.insync.replicas would be left in sync. The exit code is 1 when a partition cannot be moved, or its
    move not called off.

    \b
    Examples:
      ringlog cluster reassign orders --partition 0 --replicas 2,3,4
      ringlog cluster reassign orders -p 0 -p 1 --cancel
    """
    from cli.cluster_calls import reassign as call

    nodes = _ids(replicas) if replicas is not None else []
    if bool(nodes) == cancel:
        raise click.UsageError("use either --replicas, or --cancel")
    if not call(bootstrap, topic, partitions, nodes, as_json=as_json):
        sys.exit(1)


@cluster.command()
@click.argument("node_id", type=click.IntRange(min=1))
@click.option("--undo", is_flag=True, help="Let it have replicas again; moves off it are called off.")
@client_options
def drain(node_id: int, undo: bool, bootstrap: str, as_json: bool) -> None:
    """Move all replicas of a node to others, and give it no new ones: before it is taken away.

    The moves go on by themselves, and `ringlog cluster moves` tells how far they are; asked again, it names those that
    are under way. The exit code is 0 when nothing is left on the node, or all of it is on its way; 1 when a partition
    cannot be moved, for want of another node. Then it says why, and the node gets no new replicas all the same.

    \b
    Examples:
      ringlog cluster drain 3
      ringlog cluster drain 3 --undo
    """
    from cli.cluster_calls import drain as call

    if not call(bootstrap, node_id, undo=undo, as_json=as_json):
        sys.exit(1)


@cluster.command()
@click.argument("node_id", type=click.IntRange(min=1))
@client_options
def remove(node_id: int, bootstrap: str, as_json: bool) -> None:
    """Take a node out of the cluster for good: after it was drained and stopped.

    From then on it has no vote on the metadata, and nothing is expected of it. No node is let in with its id again.

    \b
    Examples:
      ringlog cluster drain 4
      ringlog cluster moves        # until nothing is being moved
      ringlog stop                 # on node 4
      ringlog cluster remove 4
    """
    from cli.cluster_calls import remove as call

    call(bootstrap, node_id, as_json=as_json)


@cluster.command()
@client_options
def moves(bootstrap: str, as_json: bool) -> None:
    """Show the moves that are under way, and how far each has come.

    A move ends when the new replicas are in sync; then it is not shown any more.

    \b
    Examples:
      ringlog cluster moves
      ringlog cluster moves --json | jq .percent
    """
    from cli.cluster_calls import show_moves

    show_moves(bootstrap, as_json=as_json)


@cluster.command()
@click.argument("rate", required=False)
@client_options
def throttle(rate: str | None, bootstrap: str, as_json: bool) -> None:
    """Bound how fast moves may fill a node, in bytes a second; `none` takes the bound away, without RATE it is shown.

    It holds for what is moved to one node in all, from now on, also for moves that are under way. Replicas that are in
    sync are never slowed down, nor those that come back after their node was away.

    \b
    Examples:
      ringlog cluster throttle 50MB
      ringlog cluster throttle none
    """
    from cli.amounts import amount
    from cli.cluster_calls import throttle as call

    bound = int(amount(rate)) if rate not in (None, "none") else None
    call(bootstrap, bound, change=rate is not None, as_json=as_json)


def _ids(text: str) -> list[int]:
    """Node ids from `2,3,1`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        raise click.BadParameter(f"{text!r}: use ids of nodes, such as 2,3,1", param_hint="--replicas")
    return [int(part) for part in parts]
