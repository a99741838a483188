"""`ringlog log`: tools that look into a partition's files while no node is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from cli.failures import ExitCode
from cli.lazy import HelpfulGroup
from cli.options import json_option

if TYPE_CHECKING:
    from ringlog.disk.plain import PlainDisk


@click.group(cls=HelpfulGroup)
def log() -> None:
    """Look into the files of partitions, and check them.

    Both commands open files for reading only.

    \b
    Examples:
      ringlog log verify /data
      ringlog log dump /data/orders-0/00000000000000000000.log --records
    """


@log.command()
@click.argument("path", type=click.Path(exists=True, readable=False))
@click.option("--records", is_flag=True, help="Print records instead of batches.")
@click.option(
    "--from-offset", type=click.IntRange(min=0), default=0, help="Leave out what ends below this offset."
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many batches, records or entries.")
@click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    default=256,
    show_default=True,
    help="Cut longer keys and values in text; JSON always has them whole.",
)
@click.option("--utc", is_flag=True, help="Print times in UTC instead of local time.")
@json_option
@click.pass_context
def dump(
    ctx: click.Context,
    path: str,
    records: bool,
    from_offset: int,
    count: int | None,
    max_bytes: int,
    utc: bool,
    as_json: bool,
) -> None:
    """Print what is in a segment, an index, a snapshot, a partition.state, or all segments of a partition.

    PATH is a file with the name that ringlog (or Kafka) gave it, also one that was set aside (*.cut, *.bad), or the
    directory of a partition. A node may be running. What cannot be read is said and skipped; then the exit code
    is 1.

    In JSON, keys, values and header values are strings where they are UTF-8, {"base64": "..."} where they are not,
    and null where they are null; timestamps are milliseconds since 1970.

    \b
    Examples:
      ringlog log dump /data/orders-0
      ringlog log dump --records --from-offset 4200 --count 10 /data/orders-0
      ringlog log dump --json /data/orders-0/partition.state
    """
    from cli.dump_output import DumpOptions, dump_paths

    options = DumpOptions(records, from_offset, count, max_bytes, utc, as_json)
    with _plain_disk() as disk:
        if not dump_paths(disk, path, options):
            ctx.exit(ExitCode.BROKEN_DATA)


@log.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, readable=False))
@click.option("--compacted", is_flag=True, help="Offsets may skip: the log was compacted.")
@json_option
@click.pass_context
def verify(ctx: click.Context, directory: str, compacted: bool, as_json: bool) -> None:
    """Check every invariant of the partitions in DIR, and print every one that is broken.

    DIR is the directory of a partition, or a data directory with such directories in it. Stop the node first, or
    verify a copy: files that change meanwhile look broken. Violations make the exit code 1, files that cannot be read
    5; notes (what was set aside, what the next open will cut) do not. With --json each has a line; else space reserved
    behind the logs of several partitions has one for all.

    \b
    Examples:
      ringlog log verify /data
      ringlog log verify --json /data/orders-0
    """
    from cli.verify_output import find_partitions, verify_paths

    partitions = find_partitions(directory)
    if not partitions:
        raise click.BadParameter(
            f"{directory!r} is no partition and has none in it.", ctx=ctx, param_hint="'DIR'"
        )
    with _plain_disk() as disk:
        ctx.exit(verify_paths(disk, partitions, compacted=compacted, as_json=as_json))


@contextmanager
def _plain_disk() -> Iterator[PlainDisk]:
    """Reads through the page cache: a tool should neither need io_uring nor push a node's data out of the way."""
    from ringlog.disk.plain import PlainDisk

    disk = PlainDisk()
    try:
        yield disk
    finally:
        disk.shutdown()
