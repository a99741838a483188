"""Options that many commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """`--json`: every command takes it, and then prints one JSON object per line."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")(command)
