"""`ringlog produce`: send lines to a topic."""

from __future__ import annotations

from typing import BinaryIO

import click

from cli.options import client_options
from cli.settings import parse_pairs


@click.command()
@click.argument("topic")
@click.option("--file", "-F", "file", type=click.File("rb"), default="-", help="Read this instead of stdin.")
@click.option(
    "--key-separator", "-K", metavar="TEXT", help="What stands before it in a line is the key; \\t is a tab."
)
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="KEY=VALUE", help="Of every record; may be repeated."
)
@click.option(
    "--partition", "-p", type=click.IntRange(min=0), help="Send all to this one; by default by key."
)
@click.option(
    "--by-key",
    is_flag=True,
    help='With --json: leave "partition" aside, for a topic that has others. Keys decide; without, records are spread.',
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--codec",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@client_options
def produce(
    topic: str,
    file: BinaryIO,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    by_key: bool,
    acks: str,
    codec: str,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Send each line of stdin, or of a file, as a record; say at the end how many were acknowledged, and how durable.
    A topic that is missing is created, and that is said.

    With --json each line is an object, as `ringlog consume --json` prints it, and the report is JSON, too. It may
    have "value", "key", "headers" (an object or a list of pairs), "partition" and "timestamp" (milliseconds). Bytes are
    strings, or {"base64": "..."}; null is null; any other value is sent as its JSON text. A "partition" that the topic
    does not have is an error: --by-key copies between topics with different numbers of them.

    What ends it early says how many were acknowledged before; with --json the error's object has "acknowledged".

    \b
    Examples:
      echo hello | ringlog produce orders
      ringlog produce orders --file orders.txt --key-separator : --codec lz4
      tail -f app.log | ringlog produce logs --header host=web1
      ringlog consume orders --json | ringlog produce copy --json --by-key
      echo '{"key": "a", "value": "1", "headers": {"by": "ann"}}' | ringlog produce orders --json
    """
    from cli.produce_run import ProducePlan, produce_lines

    if as_json and key_separator is not None:
        raise click.UsageError('--key-separator and --json exclude each other: a JSON record has its "key".')
    if by_key and not as_json:
        raise click.UsageError("--by-key goes with --json: other lines name no partition.")
    if key_separator == "":
        raise click.UsageError("--key-separator: give at least one letter.")
    plan = ProducePlan(
        topic=topic,
        key_separator=None if key_separator is None else _unescape(key_separator),
        headers=[
            (key, value.encode("utf-8", "surrogateescape")) for key, value in parse_pairs(headers, "--header")
        ],
        partition=partition,
        acks=acks,
        codec=codec,
        as_json=as_json,
        by_key=by_key,
    )
    produce_lines(bootstrap, plan, file)


def _unescape(separator: str) -> bytes:
    r"""A separator as bytes.

    >>> _unescape(r"\t"), _unescape("::")
    (b'\t', b'::')
    """
    return separator.replace("\\t", "\t").encode("utf-8", "surrogateescape")
