"""`ringlog plan`: how many brokers, partitions, disks and how much network a load needs."""

from __future__ import annotations

import click

from cli.amounts import amount, duration_s
from cli.finite import FiniteRange
from cli.options import json_option


@click.command()
@click.option("--records-per-s", type=amount, required=True, metavar="N", help="Records that come in: 1M.")
@click.option("--record-size", type=amount, required=True, metavar="BYTES", help="Of one record: 1KB.")
@click.option(
    "--replication", type=click.IntRange(min=1), default=3, show_default=True, help="Replicas of each record."
)
@click.option(
    "--groups",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Consumer groups that read everything.",
)
@click.option(
    "--retention",
    "retention_s",
    type=duration_s,
    default="7d",
    show_default=True,
    metavar="TIME",
    help="How long records stay.",
)
@click.option(
    "--catching-up",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Groups that read from disk at the same time.",
)
@click.option("--disks", type=click.IntRange(min=1), default=12, show_default=True, help="Disks of a broker.")
@click.option(
    "--disk-size", type=amount, default="4TB", show_default=True, metavar="BYTES", help="Of each disk."
)
@click.option(
    "--disk-write",
    type=amount,
    default="500MB",
    show_default=True,
    metavar="BYTES",
    help="Durable writes of each disk per second.",
)
@click.option(
    "--disk-read",
    type=amount,
    default="500MB",
    show_default=True,
    metavar="BYTES",
    help="Reads of each disk per second.",
)
@click.option(
    "--nics", type=click.IntRange(min=1), default=1, show_default=True, help="Network cards of a broker."
)
@click.option(
    "--nic",
    type=amount,
    default="25Gbit",
    show_default=True,
    metavar="RATE",
    help="Of each card, in each direction.",
)
@click.option(
    "--cores",
    type=click.IntRange(min=0),
    default=0,
    help="Cores of a broker; without it CPU is not looked at.",
)
@click.option(
    "--cpu-s-per-gb",
    type=FiniteRange(min=0, min_open=True),
    default=1.5,
    show_default=True,
    help="CPU seconds per GB taken or given.",
)
@click.option(
    "--headroom",
    type=FiniteRange(min=0, max=1, max_open=True),
    default=0.3,
    show_default=True,
    help="Share of everything that stays free.",
)
@click.option(
    "--consumer-rate",
    type=amount,
    default="100K",
    show_default=True,
    metavar="N",
    help="Records per second that one consumer handles.",
)
@click.option(
    "--partition-rate",
    type=amount,
    default="20MB",
    show_default=True,
    metavar="BYTES",
    help="Bytes per second for one partition at most.",
)
@click.option(
    "--slow-group", type=amount, metavar="N", help="A group that handles only so many records per second …"
)
@click.option(
    "--slow-for",
    "slow_s",
    type=duration_s,
    default="5m",
    show_default=True,
    metavar="TIME",
    help="… for so long …",
)
@click.option(
    "--recover-at", type=amount, metavar="N", help="… and so many afterwards; by default 1.2 × what comes in."
)
@json_option
def plan(
    records_per_s: float,
    record_size: float,
    replication: int,
    groups: int,
    retention_s: float,
    catching_up: int,
    disks: int,
    disk_size: float,
    disk_write: float,
    disk_read: float,
    nics: int,
    nic: float,
    cores: int,
    cpu_s_per_gb: float,
    headroom: float,
    consumer_rate: float,
    partition_rate: float,
    slow_group: float | None,
    slow_s: float,
    recover_at: float | None,
    as_json: bool,
) -> None:
    """Plan a cluster for a load: brokers, partitions, disk, network, the bottleneck, and a broker's loss.

    K, M, G, T, P are powers of 1,000 (Ki, Mi, … of 1,024), and `bit` makes bits of bytes. Nothing is measured and no
    node is asked: it is arithmetic, with the figures that you give.

    \b
    Examples:
      ringlog plan --records-per-s 1M --record-size 1KB --replication 3 --groups 5 --retention 7d
      ringlog plan --records-per-s 200K --record-size 500 --disks 4 --disk-size 8TB --nic 10Gbit --headroom 0.4
      ringlog plan --records-per-s 1M --record-size 1KB --slow-group 0.8M --slow-for 5m --recover-at 1.2M
      ringlog plan --records-per-s 1M --record-size 1KB --cores 32 --json
    """
    from cli.output import print_json
    from cli.plan_text import print_plan
    from tuning.capacity.lag import lag_of
    from tuning.capacity.load import Broker, Load
    from tuning.capacity.plan import make_plan

    made = make_plan(
        Load(
            records_per_s=records_per_s,
            record_bytes=record_size,
            replication=replication,
            retention_s=retention_s,
            groups=groups,
            catching_up_groups=min(catching_up, groups),
            consumer_records_per_s=consumer_rate,
            partition_bytes_per_s=partition_rate,
        ),
        Broker(
            disks=disks,
            disk_bytes=disk_size,
            disk_write_bytes_per_s=disk_write,
            disk_read_bytes_per_s=disk_read,
            nics=nics,
            nic_bytes_per_s=nic,
            cores=cores,
            cpu_s_per_gb=cpu_s_per_gb,
        ),
        headroom,
    )
    lag = None
    if slow_group is not None:
        lag = lag_of(
            in_per_s=records_per_s,
            handled_per_s=slow_group,
            slow_s=slow_s,
            recover_per_s=records_per_s * 1.2 if recover_at is None else recover_at,
            record_bytes=record_size,
            retention_s=retention_s,
        )
    if as_json:
        print_json({"plan": made, "lag": lag})
    else:
        print_plan(made, lag)
