"""A group of commands that are imported when they are used: `ringlog --help` must be fast."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import click

from cli.near import did_you_mean
from cli.options import bear_bootstrap


class LazyCommand(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    target: str
    """`module:name`."""
    short_help: str


class HelpfulGroup(click.Group):
    """A click group that asks whether a command of a similar name was meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            found = super().resolve_command(ctx, args)
        except click.UsageError:
            question = did_you_mean(args[0], self.list_commands(ctx))
            if not question or self.get_command(ctx, args[0]) is not None:
                raise
            raise click.UsageError(f"No such command {args[0]!r}. {question}", ctx) from None
        if found[1] is not None:
            bear_bootstrap(found[1])
        return found


class LazyGroup(HelpfulGroup):
    """A group whose commands are given as LazyCommand, by name."""

    def __init__(self, *args: Any, lazy: dict[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self._lazy.get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        module, _, name = lazy.target.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command), f"{lazy.target} is a command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what is known of them without an import."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._lazy[name].short_help) for name in sorted(self._lazy)])
