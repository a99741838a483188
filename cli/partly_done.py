"""What a command had done when it failed: told with its error, so that scripts need not guess where to go on."""

from __future__ import annotations

from typing import Any

import click

_DONE = "ringlog.partly_done"


def tell_with_failure(**done: Any) -> None:
    """Keep what was done for the error that is about to end this command; with --json they are fields of it."""
    click.get_current_context().meta[_DONE] = done


def done_before_failure(ctx: click.Context) -> dict[str, Any]:
    """What the command of a context had kept; nothing, for most."""
    found: dict[str, Any] = ctx.meta.get(_DONE, {})
    return found
