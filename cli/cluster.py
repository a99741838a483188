"""`ringlog cluster`: the nodes of a cluster, and how they are."""

from __future__ import annotations

import click

from cli.lazy import HelpfulGroup
from cli.options import client_options, group_options


@click.group(cls=HelpfulGroup)
@group_options
def cluster() -> None:
    """Look at the nodes of a cluster, and how they are.

    \b
    Examples:
      ringlog cluster describe
      ringlog cluster describe --bootstrap db1:9400,db2:9400 --json
    """


@cluster.command()
@client_options
def describe(bootstrap: str, as_json: bool) -> None:
    """Show the nodes, what each leads and keeps, and which partitions are in danger.

    Any living node answers. A partition is in danger when one of its replicas is not in sync, when fewer are than
    min.insync.replicas asks for (writes with acks=all are refused), or when nobody leads it.

    \b
    Examples:
      ringlog cluster describe
      ringlog cluster describe --json | jq .offline
    """
    from cli.cluster_calls import describe_cluster

    describe_cluster(bootstrap, as_json=as_json)
