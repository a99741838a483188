"""`ringlog bridge`: serve topics to Spark executors as Arrow."""

from __future__ import annotations

import click

from cli.options import client_options


@click.command()
@click.option(
    "--listen",
    metavar="ADDRESS",
    help="tcp://HOST:PORT or ipc:///PATH; by default the node's address, with a port 100 above its own.",
)
@click.option(
    "--cache-mib",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Memory for decoded records that several executors may ask for.",
)
@click.option("--insecure", is_flag=True, help="Listen beyond this host, though nobody is authenticated.")
@click.option("--die-with", type=int, hidden=True, help="The pid of the process to end with.")
@click.option("--verbose", "-v", is_flag=True, help="Log what is refused.")
@client_options
def bridge(
    listen: str | None,
    cache_mib: int,
    insecure: bool,
    die_with: int | None,
    verbose: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Decode topics once for many Spark executors, and stay until Ctrl-C or SIGTERM.

    Queries find a bridge beside their node by themselves; for another place there is the option `bridge` of the format
    "ringlog". Without one they read the node directly. Needs pip install ringlog[spark].

    \b
    Examples:
      ringlog bridge
      ringlog bridge --bootstrap 10.0.0.7:9400 --listen tcp://127.0.0.1:9500 --cache-mib 1024
      ringlog start --bridge                           a node and its bridge
    """
    from cli.bridge_run import run_bridge

    run_bridge(
        bootstrap,
        listen,
        cache_mib=cache_mib,
        insecure=insecure,
        die_with=die_with,
        verbose=verbose,
        as_json=as_json,
    )
