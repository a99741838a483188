"""Options of commands that look after a node on this host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def _not_empty(ctx: click.Context, option: click.Parameter, given: str | None) -> str | None:
    """A variable of a script that is not set must not mean the default directory, in which another node may be."""
    if given == "":
        raise click.BadParameter("it is empty: name a directory, or leave the option out", ctx, option)
    return given


def data_dir_option(command: Command) -> Command:
    """`--data-dir`: which node is meant."""
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, readable=False),  # what may not be read is told with what to do
        callback=_not_empty,
        help="Where the node keeps its data; by default RINGLOG_DATA_DIR, or ringlog in the user's data folder.",
    )(command)


def chosen_data_dir(given: str | None) -> str:
    """The directory that was given, or the one of nodes that were told nothing."""
    import os

    from ringlog.config import default_data_dir

    return os.path.abspath(os.path.expanduser(given or default_data_dir()))


def data_dir_of_node(given: str | None, bootstrap: str | None) -> str:
    """The directory of a node of this host, for commands that find it by that.

    With an address, InvalidRequest unless the node of that directory listens there: nobody shall stop another node
    than the one that he named. RINGLOG_BOOTSTRAP is such an address where nothing says which directory is meant.
    """
    from ringlog.client.settings import named_bootstrap
    from ringlog.config import named_data_dir

    data_dir = chosen_data_dir(given)
    if bootstrap is not None:
        _require_listens(data_dir, bootstrap, bootstrap)
    elif given is None and named_data_dir() is None and (named := named_bootstrap()) is not None:
        _require_listens(data_dir, named, f"{named} (RINGLOG_BOOTSTRAP)")
    return data_dir


def _require_listens(data_dir: str, bootstrap: str, named: str) -> None:
    from ringlog.client.settings import endpoints_of
    from ringlog.errors import InvalidRequest, NodeUnavailable
    from ringlog.node.control import find_node
    from ringlog.node.identity import is_locked

    wanted, node = endpoints_of(bootstrap), find_node(data_dir)
    if node is not None and not set(wanted) & set(node.endpoints):
        raise InvalidRequest(
            f"the node of {data_dir} listens on {node.endpoints[0]}, not at {named}. "
            "Name the --data-dir of the one that is meant"
        )
    if node is None and not is_locked(data_dir):
        raise NodeUnavailable(
            f"no node runs on {data_dir}. This command finds a node of this host by its data directory, not by its "
            f"address, here {named}: name its --data-dir"
        )
