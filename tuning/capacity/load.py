"""What a plan is made from: the load of a cluster, and one of its brokers. Pure."""

from __future__ import annotations

import msgspec

from ringlog.errors import InvalidRequest

CPU_S_PER_GB = 1.5
"""CPU seconds of a node per GB of 1 KB records: network process and shards, as the README's table has it."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What comes in, how long it stays, and who reads it."""

    records_per_s: float
    record_bytes: float
    replication: int = 3
    retention_s: float = 7 * 86400.0
    groups: int = 1
    catching_up_groups: int = 1
    """Groups that read from disk at the same time: those that keep up read from memory."""
    consumer_records_per_s: float = 100_000.0
    """What one consumer process handles: a group needs as many partitions as consumers."""
    partition_bytes_per_s: float = 20e6
    """What one partition should be given at most, so that one can be moved or recovered quickly."""

    def __post_init__(self) -> None:
        for name in (
            "records_per_s",
            "record_bytes",
            "retention_s",
            "consumer_records_per_s",
            "partition_bytes_per_s",
        ):
            if getattr(self, name) <= 0:
                raise InvalidRequest(f"{name}={getattr(self, name)}: use more than 0")
        if self.replication < 1:
            raise InvalidRequest(f"replication={self.replication}: use 1 or more")
        if self.groups < 0 or not 0 <= self.catching_up_groups <= max(self.groups, 1):
            raise InvalidRequest(
                f"groups={self.groups}, catching_up_groups={self.catching_up_groups}: use 0 to the number of groups"
            )


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """One machine of the cluster."""

    disks: int = 12
    disk_bytes: float = 4e12
    disk_write_bytes_per_s: float = 500e6
    disk_read_bytes_per_s: float = 500e6
    nics: int = 1
    nic_bytes_per_s: float = 25e9 / 8
    """Of one direction: links are full duplex."""
    cores: int = 0
    """0: CPU is not looked at."""
    cpu_s_per_gb: float = CPU_S_PER_GB
    """CPU seconds per GB that is taken or given."""

    def __post_init__(self) -> None:
        if self.disks < 1 or self.nics < 1 or self.cores < 0:
            raise InvalidRequest("a broker has at least one disk and one network card")
        for name in ("disk_bytes", "disk_write_bytes_per_s", "disk_read_bytes_per_s", "nic_bytes_per_s"):
            if getattr(self, name) <= 0:
                raise InvalidRequest(f"{name}={getattr(self, name)}: use more than 0")
        if self.cpu_s_per_gb <= 0:
            raise InvalidRequest(f"cpu_s_per_gb={self.cpu_s_per_gb}: use more than 0")
