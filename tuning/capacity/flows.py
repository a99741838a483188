"""How many bytes move and stay in a whole cluster under a load. Pure."""

from __future__ import annotations

import msgspec

from tuning.capacity.load import Load

DAY_S = 86400.0


class Flows(msgspec.Struct, frozen=True):
    """Sums over all brokers, in bytes and bytes per second."""

    in_bytes_per_s: float
    """From producers."""
    written_bytes_per_s: float
    """To the disks of all replicas."""
    out_bytes_per_s: float
    """To all groups."""
    replicated_bytes_per_s: float
    """Between brokers: sent by leaders, received by followers."""
    disk_read_bytes_per_s: float
    """By groups that catch up; all others are served from memory."""
    bytes_per_day: float
    bytes_per_day_replicated: float
    kept_bytes: float
    """Of all replicas, at the end of the retention time."""

    @property
    def network_in_bytes_per_s(self) -> float:
        return self.in_bytes_per_s + self.replicated_bytes_per_s

    @property
    def network_out_bytes_per_s(self) -> float:
        return self.out_bytes_per_s + self.replicated_bytes_per_s


def flows_of(load: Load) -> Flows:
    """Add them up.

    >>> flows = flows_of(Load(records_per_s=1e6, record_bytes=1000, replication=3, groups=5))
    >>> flows.in_bytes_per_s / 1e9, flows.written_bytes_per_s / 1e9, flows.out_bytes_per_s / 1e9
    (1.0, 3.0, 5.0)
    """
    coming = load.records_per_s * load.record_bytes
    written = coming * load.replication
    return Flows(
        in_bytes_per_s=coming,
        written_bytes_per_s=written,
        out_bytes_per_s=coming * load.groups,
        replicated_bytes_per_s=written - coming,
        disk_read_bytes_per_s=coming * load.catching_up_groups if load.groups else 0.0,
        bytes_per_day=coming * DAY_S,
        bytes_per_day_replicated=written * DAY_S,
        kept_bytes=written * load.retention_s,
    )
