"""The plan: brokers and partitions for a load, the bottleneck, and what the loss of a broker does. Pure."""

from __future__ import annotations

import math

import msgspec

from ringlog.errors import InvalidRequest
from tuning.capacity.flows import Flows, flows_of
from tuning.capacity.load import Broker, Load

HEADROOM_DEFAULT = 0.3


class Resource(msgspec.Struct, frozen=True):
    """One thing that brokers have, and how many of them it takes."""

    name: str
    demand: float
    """Of the whole cluster, in bytes, bytes per second or cores."""
    per_broker: float
    brokers_bare: int
    """With every one of them used to the last bit."""
    brokers: int
    """With head-room left free."""

    def use(self, brokers: int) -> float:
        """The share of all brokers' that is used."""
        return self.demand / (self.per_broker * brokers)


class BrokerLoss(msgspec.Struct, frozen=True):
    """What one broker's loss does until its data are copied to the others."""

    use_after: dict[str, float]
    """Share of each resource that the others use."""
    survives: bool
    """No record is lost: each has another replica."""
    carries_on: bool
    """The others have enough of everything."""
    load_share: float
    """Of the partitions' leaders, what has to move."""
    bytes_to_copy: float
    copied_to: int
    """So many of the others have a part of it to copy: a replica is copied from one broker to one."""
    copy_s: float | None
    """With what the load of the others leaves, less the head-room's share of that; None: it leaves nothing, or too few
    are left for all replicas."""


class Partitions(msgspec.Struct, frozen=True):
    """How many, and why."""

    count: int
    reason: str
    replicas_per_broker: int


class Plan(msgspec.Struct, frozen=True):
    """The answer."""

    load: Load
    broker: Broker
    headroom: float
    flows: Flows
    resources: list[Resource]
    brokers: int
    bottleneck: str
    reason: str
    partitions: Partitions
    loss: BrokerLoss


def make_plan(load: Load, broker: Broker, headroom: float = HEADROOM_DEFAULT) -> Plan:
    """Brokers for a load, so that each resource has head-room and one broker may be lost.

    >>> plan = make_plan(Load(records_per_s=1e6, record_bytes=1000, replication=3, groups=5), Broker())
    >>> plan.brokers, plan.bottleneck, plan.resources[0].brokers_bare
    (54, 'storage', 38)
    """
    if not 0 <= headroom < 1:
        raise InvalidRequest(f"headroom={headroom}: use 0 to below 1, such as 0.3 for 30 % that stay free")
    flows = flows_of(load)
    resources = _resources(flows, broker, headroom)
    tightest = max(resources, key=lambda resource: resource.demand / resource.per_broker)
    # One more than is enough without head-room: the others must carry on when one is lost.
    brokers, bottleneck, reason = max(
        (
            (
                tightest.brokers,
                tightest.name,
                f"{tightest.name} needs {tightest.brokers} with {headroom:.0%} free",
            ),
            (
                tightest.brokers_bare + 1,
                tightest.name,
                f"{tightest.name} needs {tightest.brokers_bare}, and one may be lost",
            ),
            (load.replication, "replication", f"{load.replication} replicas need as many brokers"),
        ),
        key=lambda wanted: wanted[0],
    )
    partitions = _partitions(load, flows, brokers)
    return Plan(
        load=load,
        broker=broker,
        headroom=headroom,
        flows=flows,
        resources=resources,
        brokers=brokers,
        bottleneck=bottleneck,
        reason=reason,
        partitions=partitions,
        loss=_loss(load, broker, flows, resources, brokers, partitions, headroom),
    )


def _resources(flows: Flows, broker: Broker, headroom: float) -> list[Resource]:
    demands = [
        ("storage", flows.kept_bytes, broker.disks * broker.disk_bytes),
        ("disk writes", flows.written_bytes_per_s, broker.disks * broker.disk_write_bytes_per_s),
        ("disk reads", flows.disk_read_bytes_per_s, broker.disks * broker.disk_read_bytes_per_s),
        ("network in", flows.network_in_bytes_per_s, broker.nics * broker.nic_bytes_per_s),
        ("network out", flows.network_out_bytes_per_s, broker.nics * broker.nic_bytes_per_s),
    ]
    if broker.cores:
        moved_gb = (flows.network_in_bytes_per_s + flows.network_out_bytes_per_s) / 1e9
        demands.append(("cpu", moved_gb * broker.cpu_s_per_gb, float(broker.cores)))
    return [
        Resource(
            name=name,
            demand=demand,
            per_broker=capacity,
            brokers_bare=_whole(demand / capacity),
            brokers=_whole(demand / (capacity * (1 - headroom))),
        )
        for name, demand, capacity in demands
    ]


def _whole(brokers: float) -> int:
    """Rounded up; what is a hair above a whole number by the arithmetic of floats is that number."""
    return max(1, math.ceil(brokers - 1e-9))


def _partitions(load: Load, flows: Flows, brokers: int) -> Partitions:
    wanted = {
        f"{load.consumer_records_per_s:,.0f} records/s are what one consumer of a group handles": _whole(
            load.records_per_s / load.consumer_records_per_s if load.groups else 0
        ),
        f"{load.partition_bytes_per_s / 1e6:,.0f} MB/s are enough for one partition": _whole(
            flows.in_bytes_per_s / load.partition_bytes_per_s
        ),
        "each broker leads at least one": brokers,
    }
    reason = max(wanted, key=lambda why: wanted[why])
    count = math.ceil(wanted[reason] / brokers) * brokers
    if count != wanted[reason]:
        reason += f"; {count} are the same number for each broker"
    return Partitions(count, reason, math.ceil(count * load.replication / brokers))


def _loss(
    load: Load,
    broker: Broker,
    flows: Flows,
    resources: list[Resource],
    brokers: int,
    partitions: Partitions,
    headroom: float,
) -> BrokerLoss:
    left = brokers - 1
    to_copy = flows.kept_bytes / brokers if load.replication > 1 else 0.0
    if left == 0:
        return BrokerLoss({}, False, False, 1.0, 0.0, 0, None)
    use_after = {resource.name: resource.use(left) for resource in resources}
    copy_s: float | None = 0.0
    copied_to = 0
    if to_copy:
        # Copies are read, sent, received and written by the brokers that are left, beside their load. The one with the
        # most of them is ready last: a replica is never shared by two.
        rate = min(_copy_rate(resource, broker, left) for resource in resources) * (1 - headroom)
        lost = partitions.replicas_per_broker
        most_bytes = math.ceil(lost / left) * flows.kept_bytes / (partitions.count * load.replication)
        copied_to = min(lost, left)
        room = broker.disks * broker.disk_bytes * left >= flows.kept_bytes
        possible = rate > 0 and room and left >= load.replication
        copy_s = most_bytes / rate if possible else None
    return BrokerLoss(
        use_after=use_after,
        survives=load.replication > 1,
        carries_on=max(use_after.values()) <= 1 and load.replication > 1,
        load_share=1 / brokers,
        bytes_to_copy=to_copy,
        copied_to=copied_to,
        copy_s=copy_s,
    )


def _copy_rate(resource: Resource, broker: Broker, left: int) -> float:
    """Bytes per second that one broker can copy, by what its share of the load leaves of a resource."""
    if resource.name == "storage":
        return math.inf
    spare = resource.per_broker - resource.demand / left
    if resource.name == "cpu":
        return spare / (2 * broker.cpu_s_per_gb) * 1e9  # what is copied is given by one and taken by another
    return spare
