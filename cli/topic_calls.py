"""What the commands of `ringlog topic` do: call the library, and print what it said."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cli.clients import open_admin
from cli.counted import counted, node_list
from cli.output import print_json
from cli.screen import print_table
from cli.topic_errors import naming_near_topics
from ringlog.errors import TopicExists

if TYPE_CHECKING:
    from ringlog.client.admin import PartitionInfo, TopicInfo

UNKNOWN = "unknown"
"""In place of what only a leader knows that did not answer, or that is not there."""


def create_topic(
    bootstrap: str,
    name: str,
    *,
    partitions: int | None,
    replication_factor: int | None,
    config: Mapping[str, str],
    if_not_exists: bool,
    as_json: bool,
) -> None:
    """Create a topic, and say how many partitions it has."""
    with open_admin(bootstrap) as admin:
        created = True
        try:
            described = admin.create_topic(
                name,
                num_partitions=-1 if partitions is None else partitions,
                replication_factor=-1 if replication_factor is None else replication_factor,
                config=config,
            )
        except TopicExists as exists:
            if not if_not_exists:
                raise TopicExists(
                    f"{str(exists).rstrip('.')}. Take another name, or say --if-not-exists."
                ) from None
            created = False
            described = admin.describe_topic(name)
    count = len(described.partitions)
    replicas = _replicas(described)
    if as_json:
        print_json({"name": name, "partitions": count, "replicas": replicas, "created": created})
    else:
        on = f" on {replicas} nodes each" if replicas > 1 else ""
        print(f"{'Created' if created else 'Found'} {name} with {counted(count, 'partition')}{on}.")


def _replicas(described: TopicInfo) -> int:
    """On how many nodes the partitions are kept; the smallest number, should they differ."""
    return min((len(p.replicas) for p in described.partitions if p.replicas), default=1)


def list_topics(bootstrap: str, *, internal: bool, as_json: bool) -> None:
    """Print the topics by name."""
    with open_admin(bootstrap) as admin:
        rows = [_summary(one) for one in admin.describe_topics(include_internal=internal)]
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(("TOPIC", "PARTITIONS", "RECORDS", "MB"), [_cells(row) for row in rows])
    else:
        print("There are no topics yet. Create one: ringlog topic create NAME", file=sys.stderr)


def _summary(described: TopicInfo) -> dict[str, Any]:
    is_known = all(p.is_known for p in described.partitions)
    return {
        "name": described.name,
        "partitions": len(described.partitions),
        "records": _records(described) if is_known else None,
        "bytes": sum(p.bytes for p in described.partitions) if is_known else None,
    }


def _records(described: TopicInfo) -> int:
    """How many there are in the partitions that are known."""
    return sum(p.next_offset - p.log_start_offset for p in described.partitions)


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    if row["records"] is None:
        return (row["name"], row["partitions"], UNKNOWN, UNKNOWN)
    return (row["name"], row["partitions"], row["records"], f"{row['bytes'] / 1e6:,.1f}")


def describe_topics(bootstrap: str, names: Sequence[str], *, all_settings: bool, as_json: bool) -> None:
    """Print topics, one after another, with their partitions and settings."""
    with open_admin(bootstrap) as admin:
        node = admin.topic_defaults() if all_settings else {}
        for number, name in enumerate(names):
            with naming_near_topics(name, lambda: open_admin(bootstrap)):
                described = admin.describe_topic(name)
            settings = _settings(described, node) if all_settings else {}
            if as_json:
                print_json(_description(described) | settings)
            else:
                if number:
                    print()
                _print_description(described, settings)


LOG_FIELDS = ("log_start_offset", "readable_offset", "next_offset", "bytes", "segments")
REPLICA_FIELDS = ("leader_epoch", "replicas", "isr")


def _description(described: TopicInfo) -> dict[str, Any]:
    return {
        "name": described.name,
        "config": dict(described.config),
        "partitions": [
            {
                "partition": p.index,
                "leader": p.leader,
                **{f: getattr(p, f) if p.is_known else None for f in LOG_FIELDS},
                **{f: getattr(p, f) for f in ("status", *(REPLICA_FIELDS if p.replicas else ()))},
            }
            for p in described.partitions
        ],
    }


def _settings(described: TopicInfo, node: Mapping[str, str]) -> dict[str, Any]:
    """All settings of a topic, each with its source: `topic`, `node` or `default`."""
    from ringlog.node.topic_settings import effective_settings

    internal = described.name.startswith("__")
    found = effective_settings(described.config, {} if internal else node)
    return {"settings": {name: setting._asdict() for name, setting in found.items()}}


def _print_description(described: TopicInfo, settings: Mapping[str, Any]) -> None:
    count, unknown = len(described.partitions), sum(not p.is_known for p in described.partitions)
    but = f" in {count - unknown} of them, the others are unknown" if unknown else ""
    print(f"{described.name}: {counted(count, 'partition')}, {counted(_records(described), 'record')}{but}")
    if settings:
        found = settings["settings"]
        print_table(
            ("SETTING", "VALUE", "FROM"), [(name, one["value"], one["source"]) for name, one in found.items()]
        )
    else:
        for key, value in sorted(described.config.items()):
            print(f"  {key} = {value}")
    clustered = any(p.replicas for p in described.partitions)
    headings = ("FIRST", "READABLE", "NEXT", "MB", "SEGMENTS", "STATUS")
    rows = [
        (
            p.index,
            *((_leader(p), node_list(p.replicas), node_list(p.isr)) if clustered else ()),
            *_log_cells(p),
            p.status,
        )
        for p in described.partitions
    ]
    print_table(("PARTITION", *(("LEADER", "REPLICAS", "IN SYNC") if clustered else ()), *headings), rows)


def _log_cells(p: PartitionInfo) -> tuple[object, ...]:
    if not p.is_known:
        return (UNKNOWN,) * len(LOG_FIELDS)
    return (p.log_start_offset, p.readable_offset, p.next_offset, f"{p.bytes / 1e6:,.1f}", p.segments)


def _leader(partition: PartitionInfo) -> str:
    return str(partition.leader) if partition.leader >= 0 else "none"


def alter_topic(bootstrap: str, name: str, config: dict[str, str | None], *, as_json: bool) -> None:
    """Change settings, and print those that the topic has now."""
    with open_admin(bootstrap) as admin, naming_near_topics(name, lambda: open_admin(bootstrap)):
        now = admin.alter_topic(name, config).config
    if as_json:
        print_json({"name": name, "config": now})
        return
    for key in sorted(config):
        print(f"{name}: {key} = {now[key]}" if key in now else f"{name}: {key} is at its default")


def delete_records_of(bootstrap: str, name: str, offsets: Mapping[int, int], *, as_json: bool) -> None:
    """Delete the oldest records of partitions, and say where each begins now."""
    with open_admin(bootstrap) as admin, naming_near_topics(name, lambda: open_admin(bootstrap)):
        begun = admin.delete_records(name, offsets)
    for partition, start in sorted(begun.items()):
        if as_json:
            print_json({"name": name, "partition": partition, "log_start_offset": start})
        else:
            print(f"{name}-{partition} begins at offset {start} now.")


def delete_topics(bootstrap: str, names: Sequence[str], *, as_json: bool) -> None:
    """Delete topics one after another, and say so of each."""
    with open_admin(bootstrap) as admin:
        for name in names:
            with naming_near_topics(name, lambda: open_admin(bootstrap)):
                admin.delete_topic(name)
            if as_json:
                print_json({"name": name, "deleted": True})
            else:
                print(f"Deleted {name}.")


def add_partitions_to(bootstrap: str, name: str, total: int, *, as_json: bool) -> None:
    """Let a topic have so many partitions in all."""
    with open_admin(bootstrap) as admin, naming_near_topics(name, lambda: open_admin(bootstrap)):
        admin.add_partitions(name, total)
    if as_json:
        print_json({"name": name, "partitions": total})
    else:
        print(
            f"{name} has {counted(total, 'partition')} now. New records of a key may go to another of them."
        )
