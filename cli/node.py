"""`ringlog start`, `stop`, `status` and `metrics`: look after a node on this host."""

from __future__ import annotations

import sys

import click

from cli.finite import FiniteRange
from cli.node_options import data_dir_of_node, data_dir_option
from cli.options import json_option, named_bootstrap_option


@click.command()
@data_dir_option
@click.option(
    "--listen", metavar="ADDRESS", help="tcp://HOST:PORT or ipc:///PATH; by default tcp://127.0.0.1:9400."
)
@click.option(
    "--shards", type=click.IntRange(min=0), help="Processes that own partitions; by default one per core."
)
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False), help="A TOML file with settings of a node."
)
@click.option(
    "--pin/--no-pin", default=None, help="Keep each shard on a core of its own (default), or do not."
)
@click.option(
    "--insecure", is_flag=True, default=None, help="Listen beyond this host, though nobody is authenticated."
)
@click.option("--metrics-listen", metavar="HOST:PORT", help="Serve metrics for Prometheus there.")
@click.option("--node-id", type=click.IntRange(min=1), help="Which of the nodes in --cluster this one is.")
@click.option(
    "--cluster",
    metavar="ID@HOST:PORT,...",
    help="All nodes of the cluster, this one too: where each listens for the others. It also takes the next port.",
)
@click.option("--rack", metavar="NAME", help="Where it stands: replicas go to different racks.")
@click.option(
    "--advertise",
    metavar="ADDRESS",
    help="tcp://HOST:PORT that clients are told, if not the one of --listen.",
)
@click.option("--bridge", is_flag=True, help="Start a bridge for Spark beside it, 100 ports above.")
@click.option("--verbose", "-v", is_flag=True, help="Log what the processes do.")
@json_option
def start(
    data_dir: str | None,
    listen: str | None,
    shards: int | None,
    config: str | None,
    pin: bool | None,
    insecure: bool | None,
    metrics_listen: str | None,
    node_id: int | None,
    cluster: str | None,
    rack: str | None,
    advertise: str | None,
    bridge: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Start a node, and stay until Ctrl-C, SIGTERM or `ringlog stop`. It needs no configuration.

    A line says when it is ready, and where. What goes wrong later is logged on stderr.

    \b
    Examples:
      ringlog start
      ringlog start --data-dir /data --listen tcp://127.0.0.1:9500 --shards 4
      ringlog start --metrics-listen 127.0.0.1:9401 &
    Three nodes that make a cluster, here on one host (each with its own id, directory and address):
      ringlog start --node-id 1 --cluster 1@127.0.0.1:9410,2@127.0.0.1:9420,3@127.0.0.1:9430 \\
        --data-dir /data/1 --listen tcp://127.0.0.1:9401
    """
    from cli.node_run import run_node

    settings = {
        "data_dir": data_dir,
        "listen": listen,
        "shards": shards,
        "pin": pin,
        "insecure": insecure or None,
        "metrics_listen": metrics_listen,
        "node_id": node_id,
        "cluster": cluster,
        "rack": rack,
        "advertise": advertise,
    }
    code = run_node(config, settings, bridge=bridge, verbose=verbose, as_json=as_json)
    sys.exit(code)


@click.command()
@data_dir_option
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds to wait.",
)
@named_bootstrap_option
@json_option
def stop(data_dir: str | None, timeout_s: float, bootstrap: str | None, as_json: bool) -> None:
    """Stop the node of a data directory on this host cleanly, also one that is starting, and wait until it is gone.

    \b
    Examples:
      ringlog stop
      ringlog stop --data-dir /data --timeout 60
    """
    from cli.node_run import stop_node

    stop_node(data_dir_of_node(data_dir, bootstrap), timeout_s, as_json=as_json)


@click.command()
@data_dir_option
@named_bootstrap_option
@json_option
def status(data_dir: str | None, bootstrap: str | None, as_json: bool) -> None:
    """Show the processes of a node, its partitions, rates and memory, and what is wrong.

    It is found by its data directory on this host, not by an address: `ringlog cluster describe` asks another host's.
    Rates are those of half a second. The exit code is 4 when no node runs, 0 when one does.

    \b
    Examples:
      ringlog status
      ringlog status --data-dir /data --json
    """
    from cli.node_status import show_status

    show_status(data_dir_of_node(data_dir, bootstrap), as_json=as_json)


@click.command()
@data_dir_option
@named_bootstrap_option
@json_option
def metrics(data_dir: str | None, bootstrap: str | None, as_json: bool) -> None:
    """Print the metrics of a node in Prometheus' text format; with --json, one object per sample.

    \b
    Examples:
      ringlog metrics
      ringlog metrics --data-dir /data | grep produce_seconds
    """
    from cli.node_run import print_metrics

    print_metrics(data_dir_of_node(data_dir, bootstrap), as_json=as_json)
