"""`ringlog consume`: print the records of a topic."""

from __future__ import annotations

import click

from cli.options import client_options


def _parse_from(ctx: click.Context, parameter: click.Parameter, value: str) -> object:
    from cli.start_point import parse_start

    try:
        return parse_start(value)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from None


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    default="beginning",
    show_default=True,
    metavar="PLACE",
    callback=_parse_from,
    help="beginning, end, an offset, a time in ISO 8601, or milliseconds since 1970.",
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this; may be repeated.",
)
@click.option("--count", "-n", type=click.IntRange(min=0), help="Stop after so many records.")
@click.option(
    "--follow/--exit-at-end",
    "-f",
    default=None,
    help="Wait for more at the end, or stop at the end that the topic had at the start (default, but for --from end).",
)
@click.option(
    "--group",
    "-g",
    metavar="GROUP",
    help="Share the topic with the other members of the group, and go on where it stopped. Follows by default.",
)
@click.option("--format", "text", metavar="FORMAT", help="How to print a record; %v when it is not given.")
@client_options
def consume(
    topic: str,
    start: object,
    partitions: tuple[int, ...],
    count: int | None,
    follow: bool | None,
    group: str | None,
    text: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Print the records of a topic, each on a line, those of one partition in their order.

    Without --follow it stops at the end that the topic had when it was started. With --from end, which has nothing to
    show before that end, it waits for more.

    \b
    In FORMAT these stand for a part of the record:
      %o offset      %p partition   %t topic   %h headers, as name=value,name=value
      %k key         %v value       %K, %V     their bytes, -1 for null
      %T timestamp in milliseconds  %i timestamp in ISO 8601   %% a percent sign
      \\n \\t \\r \\0 \\\\ are what they are in C. The line is ended for you.

    Text is printed as it is. Bytes that are no text are printed as Python writes them, b'\\xff\\x00', and so is text
    that begins with b' or b", so that nothing is lost. In JSON they are {"base64": "..."}.

    \b
    Examples:
      ringlog consume orders
      ringlog consume orders --from end --follow
      ringlog consume orders --from 2026-11-16T08:00:00Z --count 10 --format '%p/%o %k=%v'
      ringlog consume orders --partition 0 --from 4200 --json
      ringlog consume orders --json | ringlog produce copy --json --by-key
      ringlog consume orders --group billing
    """
    from cli.consume_run import ConsumePlan, consume_topic
    from cli.record_format import bulk_formatter
    from cli.start_point import StartKind, StartPoint

    assert isinstance(start, StartPoint)
    if as_json and text is not None:
        raise click.UsageError("--format and --json exclude each other.")
    try:
        formatter = bulk_formatter(text, as_json=as_json)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), param_hint="'--format'") from None
    if group is not None:
        from cli.consume_group import consume_as_group
        from ringlog.limits import GROUP_ID_CHARS_MAX

        if not 0 < len(group) <= GROUP_ID_CHARS_MAX:
            raise click.UsageError(f"--group: a name has 1 to {GROUP_ID_CHARS_MAX} characters.")
        if partitions or start.kind not in (StartKind.BEGINNING, StartKind.END):
            raise click.UsageError(
                "--group says what is read and from where: `ringlog group reset` sets it elsewhere."
            )
        consume_as_group(
            bootstrap,
            topic,
            group,
            reset="earliest" if start.kind is StartKind.BEGINNING else "latest",
            count=count,
            follow=follow is not False,
            formatter=formatter,
        )
        return
    if follow is None:
        follow = start.kind is StartKind.END
    plan = ConsumePlan(topic, start, sorted(set(partitions)), count, follow, as_json)
    consume_topic(bootstrap, plan, formatter)
