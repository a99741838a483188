"""A plan as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.counted import counted
from cli.screen import print_table
from tuning.amounts import bytes_text, count_text, duration_text

if TYPE_CHECKING:
    from tuning.capacity.lag import Lag
    from tuning.capacity.plan import Plan, Resource


def print_plan(plan: Plan, lag: Lag | None) -> None:
    """Print the answer first, then where it comes from."""
    load, flows, parts = plan.load, plan.flows, plan.partitions
    print(f"{counted(plan.brokers, 'broker')}: {plan.reason}")
    print(
        f"{counted(parts.count, 'partition')}, {parts.replicas_per_broker:,} replicas on each broker: {parts.reason}"
    )
    print()
    print(
        f"in           {bytes_text(flows.in_bytes_per_s)}/s from producers, {count_text(load.records_per_s)} records/s"
    )
    print(
        f"written      {bytes_text(flows.written_bytes_per_s)}/s, {load.replication} replicas of everything"
    )
    print(f"out          {bytes_text(flows.out_bytes_per_s)}/s to {counted(load.groups, 'group')}")
    print(f"between      {bytes_text(flows.replicated_bytes_per_s)}/s from leaders to followers")
    per_day, replicated = bytes_text(flows.bytes_per_day), bytes_text(flows.bytes_per_day_replicated)
    print(f"per day      {per_day}, {replicated} with all replicas")
    print(f"kept         {bytes_text(flows.kept_bytes)} after {duration_text(load.retention_s)}")
    print()
    after = plan.loss.use_after
    print_table(
        (
            "RESOURCE",
            "NEEDED",
            "PER BROKER",
            "BROKERS, BARE",
            f"WITH {plan.headroom:.0%} FREE",
            "USED",
            "USED, ONE LOST",
        ),
        [
            (
                ("→ " if resource.name == plan.bottleneck else "  ") + resource.name,
                _amount(resource, resource.demand),
                _amount(resource, resource.per_broker),
                resource.brokers_bare,
                resource.brokers,
                f"{resource.use(plan.brokers):.0%}",
                f"{after[resource.name]:.0%}" if after else "-",
            )
            for resource in plan.resources
        ],
    )
    print()
    print(loss_text(plan))
    if lag is not None:
        print(lag_text(lag))


def _amount(resource: Resource, amount: float) -> str:
    if resource.name == "cpu":
        return f"{amount:,.3g} cores"
    return bytes_text(amount) + ("" if resource.name == "storage" else "/s")


def loss_text(plan: Plan) -> str:
    """What a broker's loss does, in a sentence or two."""
    loss = plan.loss
    if not loss.survives:
        return (
            f"A broker's loss takes {loss.load_share:.0%} of the records with it: there is one replica. "
            "Use --replication 2 or more."
        )
    moved = f"A broker's loss moves {loss.load_share:.1%} of the leaders to the others"
    worst = max(loss.use_after, key=lambda name: loss.use_after[name])
    held = (
        f"{moved}; they carry on, with {worst} at {loss.use_after[worst]:.0%}."
        if loss.carries_on
        else f"{moved}, who cannot carry on: {worst} is at {loss.use_after[worst]:.0%}. Use more --headroom."
    )
    if loss.copy_s is None:
        return f"{held} Its replicas stay missing until it is replaced: too few are left, or they have none to spare."
    return (
        f"{held} To have all replicas again, {bytes_text(loss.bytes_to_copy)} are copied to {loss.copied_to} of them, "
        f"with {plan.headroom:.0%} of what their load leaves kept free: {duration_text(loss.copy_s)} at the least."
    )


def lag_text(lag: Lag) -> str:
    """What becomes of a slow group."""
    behind = f"The slow group falls {count_text(lag.behind_records)} records behind ({bytes_text(lag.behind_bytes)})"
    if lag.catch_up_s is None:
        return f"{behind} and never catches up: let it handle more than comes in."
    kept = "" if lag.kept else " Some of it is deleted before it is read: retention is too short."
    return f"{behind} and catches up in {duration_text(lag.catch_up_s)}.{kept}"
