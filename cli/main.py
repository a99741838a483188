"""The `ringlog` command: its groups, and what every command does when it fails."""

from __future__ import annotations

import sys
from typing import Any

import click

from cli.failures import ExitCode, drop_output, exit_code, failure_line
from cli.lazy import LazyCommand, LazyGroup
from ringlog import __version__
from ringlog.errors import RinglogError


class RinglogGroup(LazyGroup):
    """The outermost group: errors that any command raises end here, as a line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            try:
                result = super().invoke(ctx)
            except click.exceptions.Exit:
                sys.stdout.flush()
                raise
            # What is still buffered must fail here, not while the interpreter ends.
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            drop_output()
            ctx.exit(ExitCode.OUTPUT_CLOSED)
        except KeyboardInterrupt:
            drop_output()
            ctx.exit(ExitCode.INTERRUPTED)
        except (RinglogError, OSError) as error:
            click.echo(failure_line(error), err=True)
            ctx.exit(exit_code(error))


@click.group(
    cls=RinglogGroup,
    lazy={
        "demo": LazyCommand("cli.demo:demo", "Watch a log append, die, recover and read back."),
        "log": LazyCommand("cli.log:log", "Look into the files of partitions, and check them."),
    },
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 good, 1 broken data was found, 2 wrong usage, 3 refused, 4 try again, 5 system error.",
)
@click.version_option(__version__, "-V", "--version", prog_name="ringlog")
def ringlog() -> None:
    """ringlog: a durable, partitioned commit log.

    \b
    Examples:
      ringlog demo                                     append, kill -9, tear, recover, read back
      ringlog log dump /data/orders-0                  the batches of a partition
      ringlog log dump --records --count 10 /data/orders-0/00000000000000000000.log
      ringlog log verify /data                         check every partition there
    """


def main() -> None:
    """The entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        # Record bytes can be any text; a terminal that lacks a letter gets its code instead of an error.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        ringlog()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main()
