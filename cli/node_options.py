"""Options of commands that look after a node on this host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def data_dir_option(command: Command) -> Command:
    """`--data-dir`: which node is meant."""
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, readable=False),  # what may not be read is told with what to do
        help="Where the node keeps its data; by default RINGLOG_DATA_DIR, or ringlog in the user's data folder.",
    )(command)


def chosen_data_dir(given: str | None, bootstrap: str | None = None) -> str:
    """The directory that was given, or the one of nodes that were told nothing.

    With an address, InvalidRequest unless the node of that directory listens there: nobody shall stop another node
    than the one that he named.
    """
    import os

    from ringlog.config import default_data_dir

    data_dir = os.path.abspath(os.path.expanduser(given or default_data_dir()))
    if bootstrap is not None:
        _require_listens(data_dir, bootstrap)
    return data_dir


def _require_listens(data_dir: str, bootstrap: str) -> None:
    from ringlog.client.settings import endpoints_of
    from ringlog.errors import InvalidRequest
    from ringlog.node.control import find_node

    node = find_node(data_dir)
    if node is not None and not set(endpoints_of(bootstrap)) & set(node.endpoints):
        raise InvalidRequest(
            f"the node of {data_dir} listens on {node.endpoints[0]}, not at {bootstrap}. Name the other's --data-dir"
        )
