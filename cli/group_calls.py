"""What the commands of `ringlog group` do: call the library, and print what it said."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cli.clients import open_admin
from cli.counted import counted
from cli.output import print_json
from cli.screen import print_table
from cli.start_point import StartKind, parse_start

if TYPE_CHECKING:
    from ringlog.client.group_admin import GroupInfo


def list_groups(bootstrap: str, *, as_json: bool) -> None:
    """Print the groups by name."""
    with open_admin(bootstrap) as admin:
        groups = admin.list_groups()
    rows = [
        {
            "group": g.group_id,
            "state": g.state,
            "members": g.members,
            "assignor": g.assignor,
            "lag": g.lag,
            "lag_ms": g.lag_ms,
        }
        for g in groups
    ]
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(
            ("GROUP", "STATE", "MEMBERS", "ASSIGNOR", "LAG", "LAG MS"), [tuple(row.values()) for row in rows]
        )
    else:
        print("There are no groups yet. A consumer with a group_id makes one.", file=sys.stderr)


def describe_groups(bootstrap: str, names: Sequence[str], *, as_json: bool) -> None:
    """Print groups, one after another."""
    with open_admin(bootstrap) as admin:
        for number, name in enumerate(names):
            described = admin.describe_group(name)
            if as_json:
                print_json(_description(described))
            else:
                if number:
                    print()
                _print_description(described)


def _description(described: GroupInfo) -> dict[str, Any]:
    return {
        "group": described.group_id,
        "state": described.state,
        "epoch": described.epoch,
        "assignor": described.assignor,
        "lag": described.lag,
        "lag_ms": described.lag_ms,
        "members": [
            {
                "member": m.member_id,
                "instance": m.instance_id,
                "client": m.client_id,
                "epoch": m.epoch,
                "subscribed": m.subscribed,
                "assigned": [str(tp) for tp in m.assigned],
                "revoking": [str(tp) for tp in m.revoking],
                "heard_ms_ago": m.heard_ms_ago,
            }
            for m in described.members
        ],
        "partitions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "committed": p.committed,
                "readable": p.readable_offset,
                "lag": p.lag,
                "lag_ms": p.lag_ms,
                "metadata": p.metadata,
                "member": p.member_id,
            }
            for p in described.partitions
        ],
    }


def _print_description(described: GroupInfo) -> None:
    members = counted(len(described.members), "member")
    behind = counted(described.lag, "record")
    print(f"{described.group_id}: {described.state}, {members}, {behind} behind")
    if described.members:
        rows = [
            (
                m.member_id,
                m.instance_id,
                m.client_id,
                m.epoch,
                len(m.assigned),
                len(m.revoking),
                m.heard_ms_ago,
            )
            for m in described.members
        ]
        print_table(("MEMBER", "INSTANCE", "CLIENT", "EPOCH", "PARTITIONS", "REVOKING", "HEARD MS AGO"), rows)
    if described.partitions:
        parts = [
            (
                p.topic,
                p.partition,
                *("-" if n is None else n for n in (p.committed, p.readable_offset, p.lag, p.lag_ms)),
                p.member_id or "-",
            )
            for p in described.partitions
        ]
        print_table(("TOPIC", "PARTITION", "COMMITTED", "READABLE", "LAG", "LAG MS", "MEMBER"), parts)


def reset_group(
    bootstrap: str,
    name: str,
    *,
    topic: str | None,
    partitions: Sequence[int],
    to: str | None,
    shift: int | None,
    execute: bool,
    as_json: bool,
) -> None:
    """Print from where to where the partitions of a group are set, and do it if told to."""
    with open_admin(bootstrap) as admin:
        planned = admin.plan_reset(
            name, topic=topic, partitions=list(partitions) or None, shift=shift, **_target(to)
        )
        if execute and planned:
            admin.reset_group(name, planned)
    for plan in planned if as_json else ():
        print_json(
            {
                "group": name,
                "topic": plan.topic,
                "partition": plan.partition,
                "before": plan.before,
                "after": plan.after,
                "executed": execute,
            }
        )
    if as_json:
        return
    if planned:
        rows = [(p.topic, p.partition, "-" if p.before is None else p.before, p.after) for p in planned]
        print_table(("TOPIC", "PARTITION", "BEFORE", "AFTER"), rows)
    if not execute:
        print("Nothing was changed. Say --execute to do it.", file=sys.stderr)


def delete_groups(bootstrap: str, names: Sequence[str], *, execute: bool, as_json: bool) -> None:
    """Forget groups, or say what would be forgotten."""
    with open_admin(bootstrap) as admin:
        for name in names:
            if execute:
                count = admin.delete_group(name)
            else:
                count = sum(p.committed is not None for p in admin.describe_group(name).partitions)
            if as_json:
                print_json({"group": name, "offsets": count, "executed": execute})
            else:
                print(f"{'Deleted' if execute else 'Would delete'} {name} with {counted(count, 'offset')}.")
    if not execute and not as_json:
        print("Nothing was changed. Say --execute to do it.", file=sys.stderr)


def _target(to: str | None) -> dict[str, Any]:
    if to is None:
        return {}
    try:
        point = parse_start(to)
    except ValueError as wrong:
        raise click.UsageError(f"--to: {wrong}.") from None
    match point.kind:
        case StartKind.BEGINNING:
            return {"to": "earliest"}
        case StartKind.END:
            return {"to": "latest"}
        case StartKind.OFFSET:
            return {"offset": point.value}
    return {"to": point.value}
