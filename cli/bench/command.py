"""`ringlog bench`: its commands and their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.finite import FiniteRange
from cli.lazy import HelpfulGroup
from cli.options import client_options, group_options

if TYPE_CHECKING:
    from cli.bench.plan import Plan

Command = TypeVar("Command", bound=Callable[..., Any])

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def load_options(
    topic: str, partitions: int, count_help: str, topic_help: str = "Created when it is missing."
) -> Callable[[Command], Command]:
    """The options that all benchmarks take."""
    options = (
        click.option(
            "--record-size",
            type=click.IntRange(1, 4_000_000),
            default=100,
            show_default=True,
            help="Bytes of a value.",
        ),
        click.option("--count", type=click.IntRange(min=1), help=count_help),
        click.option("--seconds", type=FiniteRange(min=0, min_open=True), help="Stop after this time."),
        click.option(
            "--rate",
            type=FiniteRange(min=0.001),
            help="Records per second, timed from when each was due; by default as fast as it goes.",
        ),
        click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True),
        click.option("--codec", type=click.Choice(CODECS), default="none", show_default=True),
        click.option(
            "--producers", type=click.IntRange(1, 64), default=1, show_default=True, help="A process each."
        ),
        click.option(
            "--partitions",
            type=click.IntRange(1, 10_000),
            default=partitions,
            show_default=True,
            help="Of the topic, when it is created.",
        ),
        click.option("--topic", default=topic, show_default=True, help=topic_help),
        client_options,
    )

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.group(cls=HelpfulGroup)
@group_options
def bench() -> None:
    """Measure how fast a node takes and gives records.

    The load comes from this machine: a node on the same cores has fewer left for itself.

    \b
    Examples:
      ringlog bench produce --seconds 10
      ringlog bench consume
      ringlog bench latency --rate 1000 --seconds 10 --json
    """


@bench.command()
@load_options("bench", 16, "Stop after so many records; 1,000,000 when --seconds is not given either.")
def produce(**options: Any) -> None:
    """Send records, and time each from its sending to its acknowledgement. The topic is kept.

    Ctrl-C ends it, with the figures so far.

    \b
    Examples:
      ringlog bench produce
      ringlog bench produce --record-size 1000 --seconds 10 --producers 2
      ringlog bench produce --rate 50000 --seconds 10 --acks all --codec lz4 --json
    """
    from cli.bench.run import run_produce

    plan, as_json = _plan(options)
    run_produce(plan, as_json=as_json)


@bench.command()
@load_options(
    "bench",
    16,
    "Stop after so many records; 1,000,000 when --seconds is not given either.",
    "The default one is created when it is missing; another one must be there.",
)
def consume(**options: Any) -> None:
    """Read the topic from its start, and time each poll. The topic `bench` is filled first when it has fewer records
    than needed, one that --topic names only up to --count.

    --record-size, --acks, --codec, --producers and --partitions are those of the filling.

    \b
    Examples:
      ringlog bench consume
      ringlog bench consume --count 5000000 --json
    """
    from cli.bench.run import run_consume

    plan, as_json = _plan(options)
    run_consume(plan, as_json=as_json)


@bench.command()
@load_options(
    "bench-latency",
    1,
    "Stop after so many records; 1,000 (or 5 seconds of --rate) when --seconds is not given either.",
)
def latency(**options: Any) -> None:
    """Send records and receive them, and time each from its sending to its arrival.

    One at a time: the next is sent when the last has arrived. With --rate they are sent at that rate whatever
    happens, and timed from when each was due, so that a stall counts for all that waited behind it.

    \b
    Examples:
      ringlog bench latency
      ringlog bench latency --rate 1000 --seconds 10 --json
    """
    from cli.bench.run import run_latency

    if options["count"] is None and options["seconds"] is None:
        seconds_of_rate = 5
        options["count"] = 1000 if options["rate"] is None else max(int(options["rate"] * seconds_of_rate), 1)
    plan, as_json = _plan(options)
    if plan.producers > 1:
        raise click.UsageError("--producers: one producer sends, so that one clock times.")
    if plan.record_size < 8:
        raise click.UsageError("--record-size: at least 8, which hold the record's number.")
    run_latency(plan, as_json=as_json)


def _plan(options: dict[str, Any]) -> tuple[Plan, bool]:
    from cli.bench.plan import Plan
    from cli.wrong_usage import judging_options
    from ringlog.client.settings import check_topic_name

    as_json = options.pop("as_json")
    with judging_options():
        check_topic_name(options["topic"])
    return Plan(**options), as_json
