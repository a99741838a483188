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
        type=click.Path(file_okay=False),
        help="Where the node keeps its data; by default RINGLOG_DATA_DIR, or ringlog in the user's data folder.",
    )(command)


def chosen_data_dir(given: str | None) -> str:
    """The directory that was given, or the one of nodes that were told nothing."""
    import os

    from ringlog.config import default_data_dir

    return os.path.abspath(os.path.expanduser(given or default_data_dir()))
