"""Options that many commands share. They may stand before or behind any subcommand; the last one counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from cli.wrong_usage import judging_options

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9400"
_JSON = "ringlog.as_json"
_BOOTSTRAP = "ringlog.bootstrap"


def json_option(command: Command) -> Command:
    """`--json`: every command takes it, and then prints one JSON object per line."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        callback=_inherit(_JSON),
        help="Print one JSON object per line; errors too.",
    )(command)


def bootstrap_option(command: Command) -> Command:
    """`--bootstrap`: every command that talks to a node takes it."""
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        default=DEFAULT_BOOTSTRAP,
        envvar="RINGLOG_BOOTSTRAP",
        callback=_address,
        show_default=True,
        show_envvar=True,
        help="Where a node listens.",
    )(command)


def named_bootstrap_option(command: Command) -> Command:
    """`--bootstrap` for commands that find a node by its data directory: then it only says which one is meant."""
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        callback=_address,
        help="Only when the node listens there; else, or without --data-dir at RINGLOG_BOOTSTRAP, it is an error.",
    )(command)


def client_options(command: Command) -> Command:
    """Both: for commands that talk to a node and print what it said."""
    return bootstrap_option(json_option(command))


def group_options(command: Command) -> Command:
    """Both, on a group: kept for the command that follows."""
    for flag, key, settings in (
        ("--json", _JSON, {"is_flag": True}),
        ("--bootstrap", _BOOTSTRAP, {"metavar": "HOST:PORT"}),
    ):
        command = click.option(
            flag, f"_{key}", expose_value=False, callback=_inherit(key), hidden=True, **settings
        )(command)
    return command


def asked_for_json(ctx: click.Context) -> bool:
    """Whether --json was met so far on the command line of a context."""
    return bool(ctx.meta.get(_JSON))


def bear_bootstrap(command: click.Command) -> None:
    """Let a command that asks no node take `--bootstrap` as all others do: whoever puts an address behind each command
    of a script need not know which of them ask. It must be one, and is used for nothing."""
    if not isinstance(command, click.Group) and all(one.name != "bootstrap" for one in command.params):
        command.params.append(
            click.Option(
                ["--bootstrap"], metavar="HOST:PORT", expose_value=False, callback=_address, hidden=True
            )
        )


def names_json(arguments: Sequence[str]) -> bool:
    """Whether --json stands on a command line that could not be understood.

    >>> names_json(["topic", "list", "--json"]), names_json(["topic", "describe", "--", "--json"])
    (True, False)
    """
    return "--json" in itertools.takewhile(lambda argument: argument != "--", arguments)


def _address(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """As `_inherit`; wrong usage when it is no address."""
    from ringlog.client.settings import endpoints_of

    chosen = _inherit(_BOOTSTRAP)(ctx, parameter, value)
    if chosen is not None:
        with judging_options():
            endpoints_of(chosen)
    return chosen


def _inherit(key: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Take a value from the command line, else the one given further to the left, else env or default."""

    def choose(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
        source = ctx.get_parameter_source(parameter.name or "")
        if source is ParameterSource.COMMANDLINE:
            ctx.meta[key] = value  # shared by all contexts of one command line
        return ctx.meta.get(key, value)

    return choose
