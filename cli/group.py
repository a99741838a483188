"""`ringlog group`: look at consumer groups, set them elsewhere, forget them."""

from __future__ import annotations

import click

from cli.lazy import HelpfulGroup
from cli.options import client_options, group_options


@click.group(cls=HelpfulGroup)
@group_options
def group() -> None:
    """Look at consumer groups, reset and delete them.

    \b
    Examples:
      ringlog group list
      ringlog group describe billing
      ringlog group reset billing --to earliest
    """


@group.command("list")
@client_options
def list_(bootstrap: str, as_json: bool) -> None:
    """List the consumer groups.

    \b
    Examples:
      ringlog group list
      ringlog group list --json | jq -r .group
    """
    from cli.group_calls import list_groups

    list_groups(bootstrap, as_json=as_json)


@group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@client_options
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show members, partitions, committed offsets and how many records a group is behind.

    \b
    Examples:
      ringlog group describe billing
      ringlog group describe billing --json
    """
    from cli.group_calls import describe_groups

    describe_groups(bootstrap, names, as_json=as_json)


@group.command()
@click.argument("name", metavar="GROUP")
@click.option("--topic", "-t", help="Only this topic; by default all that the group has committed.")
@click.option(
    "--partition", "-p", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this one."
)
@click.option(
    "--to", metavar="WHERE", help="earliest, latest, an offset, or a time such as 2026-11-16T08:00:00Z."
)
@click.option("--shift", type=int, metavar="N", help="So many records forwards, or back if negative.")
@click.option("--execute", is_flag=True, help="Do it. Without this, only show what would be done.")
@client_options
def reset(
    name: str,
    topic: str | None,
    partitions: tuple[int, ...],
    to: str | None,
    shift: int | None,
    execute: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Let a group go on from elsewhere. It must have no members. Shows what it would do, unless --execute is given.

    \b
    Examples:
      ringlog group reset billing --to earliest
      ringlog group reset billing --topic orders --to 2026-11-16T08:00:00Z --execute
      ringlog group reset billing --topic orders --partition 3 --shift -100 --execute
    """
    from cli.group_calls import reset_group

    if (to is None) == (shift is None):
        raise click.UsageError("say where to: one of --to WHERE and --shift N.")
    if partitions and topic is None:
        raise click.UsageError("--partition needs a --topic.")
    reset_group(
        bootstrap,
        name,
        topic=topic,
        partitions=partitions,
        to=to,
        shift=shift,
        execute=execute,
        as_json=as_json,
    )


@group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("--execute", is_flag=True, help="Do it. Without this, only show what would be done.")
@client_options
def delete(names: tuple[str, ...], execute: bool, bootstrap: str, as_json: bool) -> None:
    """Forget groups and their offsets. They must have no members. Shows what it would do, unless --execute is given.

    \b
    Examples:
      ringlog group delete billing
      ringlog group delete billing audit --execute
    """
    from cli.group_calls import delete_groups

    delete_groups(bootstrap, names, execute=execute, as_json=as_json)
