"""What metrics must ask a node for: the names of partitions, and how far consumer groups are behind."""

from __future__ import annotations

from typing import NamedTuple

from ringlog.client.admin import Admin
from ringlog.errors import RinglogError
from ringlog.model import TopicPartition
from ringlog.net.group_messages import GroupSummary

TIMEOUT_S = 2.0
METRICS = {
    "ringlog_groups_known": "1 when the node could be asked for its groups",
    "ringlog_group_members": "Members of a consumer group",
    "ringlog_group_lag_records": "Records that a consumer group has still to read",
    "ringlog_group_lag_ms": "Milliseconds since the oldest of them came",
}


class Told(NamedTuple):
    """What a node answered; None where it did not, so that the other metrics are told all the same."""

    names: dict[int, TopicPartition] | None = None
    groups: list[GroupSummary] | None = None


def ask_node(endpoint: str, timeout_s: float = TIMEOUT_S) -> Told:
    """Ask the node that listens at an endpoint: one question for the names, one to each shard that keeps groups."""
    told = Told()
    try:
        with Admin(bootstrap=endpoint.removeprefix("tcp://")) as admin:
            told = Told(admin.partition_names(timeout=timeout_s))
            return told._replace(groups=admin.list_groups(timeout=timeout_s))
    except RinglogError:
        return told


def lag_lines(groups: list[GroupSummary] | None) -> str:
    """Prometheus text of groups; None: they are not known.

    >>> print(lag_lines([GroupSummary("billing", "stable", 2, 7, "sticky", 40, 1500)]).splitlines()[-1])
    ringlog_group_lag_ms{group="billing"} 1500
    """
    values = {
        "ringlog_groups_known": [("", int(groups is not None))],
        "ringlog_group_members": [(_label(g), g.members) for g in groups or ()],
        "ringlog_group_lag_records": [(_label(g), g.lag) for g in groups or ()],
        "ringlog_group_lag_ms": [(_label(g), g.lag_ms) for g in groups or ()],
    }
    lines: list[str] = []
    for name, samples in values.items():
        lines += [f"# HELP {name} {METRICS[name]}", f"# TYPE {name} gauge"]
        lines += [f"{name}{label} {value}" for label, value in samples]
    return "\n".join(lines) + "\n"


def _label(group: GroupSummary) -> str:
    name = group.group_id.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{group="{name}"}}'
