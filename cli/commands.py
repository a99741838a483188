"""The `ringlog` command: its groups, and what every command does when it fails."""

from __future__ import annotations

import sys
from typing import Any

import click

from cli.failures import ExitCode, drop_output, exit_code, failure_json, failure_line
from cli.lazy import LazyCommand, LazyGroup
from cli.options import asked_for_json, group_options, names_json
from cli.partly_done import done_before_failure
from ringlog import __version__
from ringlog.errors import RinglogError

_NAMES_JSON = "ringlog.names_json"


class RinglogGroup(LazyGroup):
    """The outermost group: errors that any command raises end here, as a line and an exit code."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        names = names_json(args)  # before they are taken apart
        try:
            ctx = super().make_context(info_name, args, parent, **extra)
            ctx.meta[_NAMES_JSON] = names
            return ctx
        except click.ClickException as wrong:
            if not names:
                raise
            click.echo(failure_json(wrong), err=True)
            raise click.exceptions.Exit(wrong.exit_code) from None
        except BrokenPipeError:  # of --help and --version, which are done before anything is invoked
            drop_output()
            raise click.exceptions.Exit(ExitCode.OUTPUT_CLOSED) from None
        except OSError as error:  # likewise: a full disk
            drop_output()
            click.echo(failure_line(error), err=True)
            raise click.exceptions.Exit(exit_code(error)) from None

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
        except click.Abort:  # Ctrl-C or Ctrl-D at a question, which stands in an unfinished line
            click.echo(err=True)
            ctx.exit(ExitCode.INTERRUPTED)
        except KeyboardInterrupt:
            drop_output()
            ctx.exit(ExitCode.INTERRUPTED)
        except click.ClickException as wrong:
            # Parsing may have ended before it came to --json.
            if not asked_for_json(ctx) and not ctx.meta[_NAMES_JSON]:
                raise
            click.echo(failure_json(wrong), err=True)
            ctx.exit(wrong.exit_code)
        except (RinglogError, OSError) as error:
            done = done_before_failure(ctx)
            click.echo(failure_json(error, **done) if asked_for_json(ctx) else failure_line(error), err=True)
            ctx.exit(exit_code(error))


@click.group(
    cls=RinglogGroup,
    lazy={
        "bench": LazyCommand("cli.bench.command:bench", "Measure how fast a node takes and gives records."),
        "bridge": LazyCommand("cli.bridge:bridge", "Serve topics to Spark executors as Arrow."),
        "cluster": LazyCommand("cli.cluster:cluster", "Look at the nodes of a cluster, and how they are."),
        "consume": LazyCommand("cli.consume:consume", "Print the records of a topic."),
        "demo": LazyCommand("cli.demo:demo", "Watch a log append, die, recover and read back."),
        "doctor": LazyCommand("cli.doctor:doctor", "Check what this machine lacks, and how to fix it."),
        "group": LazyCommand("cli.group:group", "Look at consumer groups, reset and delete them."),
        "log": LazyCommand("cli.log:log", "Look into the files of partitions, and check them."),
        "metrics": LazyCommand("cli.node:metrics", "Print a node's counters for Prometheus."),
        "plan": LazyCommand("cli.plan:plan", "Plan a cluster for a load."),
        "produce": LazyCommand("cli.produce:produce", "Send lines to a topic."),
        "start": LazyCommand("cli.node:start", "Start a node."),
        "status": LazyCommand("cli.node:status", "Show how a node is doing."),
        "stop": LazyCommand("cli.node:stop", "Stop a node cleanly."),
        "topic": LazyCommand("cli.topic:topic", "Create, look at, change and delete topics."),
        "tune": LazyCommand("cli.tune:tune", "Measure this machine, and set a node up for it."),
    },
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 good, 1 broken data was found, 2 wrong usage, 3 refused, 4 try again, 5 system error.",
)
@click.version_option(__version__, "-V", "--version", prog_name="ringlog")
@group_options
def ringlog() -> None:
    """ringlog: a durable, partitioned commit log.

    --json (but for demo) and --bootstrap HOST:PORT may stand before or behind any subcommand; RINGLOG_BOOTSTRAP is an
    address for all that ask a node. stop, status and metrics find a node of this host by its --data-dir. With --json
    an error is JSON as well, the last line of stderr: {"code": ..., "message": ..., "retriable": ...}.

    \b
    Examples:
      ringlog start &                                  a node, with nothing to configure
      ringlog topic create orders --partitions 4
      echo hello | ringlog produce orders
      ringlog consume orders                           from the beginning to the end; --follow waits for more
      ringlog bench produce --seconds 5
      ringlog log verify /data                         check every partition there
      ringlog demo                                     produce, kill -9, recover, read back
    """
