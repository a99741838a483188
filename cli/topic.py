"""`ringlog topic`: create, look at, change and delete topics."""

from __future__ import annotations

import re

import click

from cli.consent import require_consent
from cli.lazy import HelpfulGroup
from cli.options import client_options, group_options
from cli.settings import parse_settings

MIN_INSYNC = "min.insync.replicas"
_yes_option = click.option(
    "--yes", "-y", is_flag=True, help="Do not ask. Only a person at a terminal is asked."
)


@click.group(cls=HelpfulGroup)
@group_options
def topic() -> None:
    """Create, look at, change and delete topics.

    \b
    Examples:
      ringlog topic create orders --partitions 16
      ringlog topic list
      ringlog topic describe orders
    """


@topic.command()
@click.argument("name")
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(min=1),
    help="How many; by default as many as the node is set to.",
)
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(min=1),
    help="On how many nodes; by default on three, or on as many as there are and are not drained.",
)
@click.option(
    "--min-insync",
    "-m",
    type=click.IntRange(min=1),
    help="So many replicas must be in sync for a write with acks=all: min.insync.replicas.",
)
@click.option(
    "--config", "-c", "settings", multiple=True, metavar="KEY=VALUE", help="A setting; may be repeated."
)
@click.option("--if-not-exists", is_flag=True, help="Be content when the topic is there already.")
@client_options
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    min_insync: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create a topic.

    \b
    Examples:
      ringlog topic create orders
      ringlog topic create orders --partitions 16 --config segment.bytes=268435456
      ringlog topic create orders --replication-factor 3 --min-insync 2
      ringlog topic create orders --if-not-exists --json
    """
    from cli.topic_calls import create_topic

    config = dict(parse_settings(settings, "--config"))
    if min_insync is not None:
        if MIN_INSYNC in config:
            raise click.UsageError(f"--min-insync and --config {MIN_INSYNC} say the same; give one of them.")
        if replication_factor is not None and min_insync > replication_factor:
            raise click.UsageError(
                f"--min-insync {min_insync} with {replication_factor} replicas: nothing could ever be written. "
                "Ask for fewer, or for more replicas."
            )
        config[MIN_INSYNC] = str(min_insync)
    create_topic(
        bootstrap,
        name,
        partitions=partitions,
        replication_factor=replication_factor,
        config=config,
        if_not_exists=if_not_exists,
        as_json=as_json,
    )


@topic.command("list")
@click.option("--internal", is_flag=True, help="Show also the topics that ringlog keeps for itself.")
@client_options
def list_(internal: bool, bootstrap: str, as_json: bool) -> None:
    """List the topics.

    \b
    Examples:
      ringlog topic list
      ringlog topic list --json | jq -r .name
    """
    from cli.topic_calls import list_topics

    list_topics(bootstrap, internal=internal, as_json=as_json)


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--settings", is_flag=True, help="Show all settings, and where each comes from.")
@client_options
def describe(names: tuple[str, ...], settings: bool, bootstrap: str, as_json: bool) -> None:
    """Show the partitions of topics, what is in them, and their settings; in a cluster also who leads and keeps them.

    \b
    Examples:
      ringlog topic describe orders
      ringlog topic describe orders --settings
      ringlog topic describe orders payments --json
    """
    from cli.topic_calls import describe_topics

    describe_topics(bootstrap, names, all_settings=settings, as_json=as_json)


@topic.command()
@click.argument("name")
@click.option(
    "--config", "-c", "settings", multiple=True, metavar="KEY=VALUE", help="Set this; may be repeated."
)
@click.option("--reset", multiple=True, metavar="KEY", help="Take this back to its default; may be repeated.")
@client_options
def alter(
    name: str, settings: tuple[str, ...], reset: tuple[str, ...], bootstrap: str, as_json: bool
) -> None:
    """Change settings of a topic. Those that are not named stay as they are.

    \b
    Examples:
      ringlog topic alter orders --config segment.ms=3600000
      ringlog topic alter orders --reset segment.ms
    """
    from cli.topic_calls import alter_topic

    config: dict[str, str | None] = {**parse_settings(settings, "--config")}
    for key in reset:
        if key in config:
            raise click.UsageError(f"{key} is both set and reset; choose one.")
        config[key] = None
    if not config:
        raise click.UsageError("nothing to change: give --config KEY=VALUE or --reset KEY.")
    alter_topic(bootstrap, name, config, as_json=as_json)


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_yes_option
@client_options
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete topics with all their records.

    \b
    Examples:
      ringlog topic delete orders
      ringlog topic delete orders payments --yes
    """
    from cli.topic_calls import delete_topics

    require_consent(f"Delete {', '.join(names)} with all records?", yes=yes)
    delete_topics(bootstrap, names, as_json=as_json)


@topic.command("delete-records")
@click.argument("name")
@click.argument("starts", metavar="PARTITION=OFFSET...", nargs=-1, required=True)
@_yes_option
@client_options
def delete_records(name: str, starts: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete the records of partitions that lie before an offset; -1 for all.

    Space is freed by whole segments; a partition of which everything is deleted frees all of its own.

    \b
    Examples:
      ringlog topic delete-records orders 0=1000
      ringlog topic delete-records orders 0=-1 1=-1 --yes
    """
    from cli.topic_calls import delete_records_of

    offsets: dict[int, int] = {}
    for text in starts:
        found = re.fullmatch(r"([0-9]{1,9})=(-1|[0-9]{1,18})", text)
        if found is None:
            raise click.UsageError(f"{text!r}: give PARTITION=OFFSET, as in 0=1000.")
        offsets[int(found[1])] = int(found[2])
    places = ", ".join(_before(name, partition, offset) for partition, offset in offsets.items())
    require_consent(f"Delete {places}?", yes=yes)
    delete_records_of(bootstrap, name, offsets, as_json=as_json)


def _before(name: str, partition: int, offset: int) -> str:
    """What is deleted of a partition, in words.

    >>> _before("orders", 0, 1000), _before("orders", 1, -1)
    ('the records of orders-0 before offset 1000', 'all records of orders-1')
    """
    where = f"{name}-{partition}"
    return f"all records of {where}" if offset < 0 else f"the records of {where} before offset {offset}"


@topic.command("add-partitions")
@click.argument("name")
@click.argument("total", type=click.IntRange(min=1))
@client_options
def add_partitions(name: str, total: int, bootstrap: str, as_json: bool) -> None:
    """Let a topic have TOTAL partitions. There is no way back to fewer.

    Records with a key go to the partition that the key and the number of partitions give: after this, a key's new
    records may go to another partition than its old ones.

    \b
    Examples:
      ringlog topic add-partitions orders 32
    """
    from cli.topic_calls import add_partitions_to

    add_partitions_to(bootstrap, name, total, as_json=as_json)
