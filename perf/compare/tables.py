"""The tables of a comparison's report, as rows of text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from perf.compare.model import Workload, size_name
from perf.compare.summary import Summary

TITLES = {
    "ringlog": "ringlog",
    "ringlog-single": "ringlog, one at a time",
    "kafka": "Kafka, Java tools",
    "kafka-confluent": "Kafka, confluent-kafka",
    "kafka-aiokafka": "Kafka, aiokafka",
    "nats": "NATS JetStream",
    "redis": "Redis Streams",
    "rabbitmq": "RabbitMQ Streams",
}


class Table(NamedTuple):
    """Headings, and rows as wide."""

    title: str
    headings: list[str]
    rows: list[list[str]]


def tables_of(summary: Summary) -> list[Table]:
    """Everything a reader is shown, in order; tables without a row are left out."""
    made = [
        goals(summary),
        throughput(summary, "produce"),
        throughput(summary, "consume"),
        latency(summary),
        costs(summary),
        limits(summary),
        skipped(summary),
    ]
    return [table for table in made if table.rows]


def goals(summary: Summary) -> Table:
    rows = [
        [
            goal.what,
            f"{goal.value:.2f}",
            goal.goal.text,
            "" if goal.allowed is None else f"{goal.allowed:.1f}",
            "reached" if goal.reached else "beyond the machine" if goal.is_beyond else "missed",
        ]
        for goal in summary.goals
    ]
    return Table("Goals", ["ratio in one run", "measured", "goal", "the machine's limits allow", ""], rows)


def throughput(summary: Summary, operation: str) -> Table:
    """Records per second of every system, a row for each workload, with ringlog's share of the bound."""
    systems = systems_of(summary)
    rows = []
    for workload in workloads_of(summary):
        share = summary.results.get(f"{operation}.ringlog.{workload.name}.share_of_bound")
        cells = [_rate(summary, f"{operation}.{system}.{workload.name}") for system in systems]
        rows.append([label(workload), *cells, "" if share is None else f"{share:.2f}"])
    return Table(
        f"{operation.capitalize()}, records per second",
        ["workload", *(TITLES[system] for system in systems), "ringlog's share of the bound"],
        rows,
    )


def latency(summary: Summary) -> Table:
    """Percentiles in milliseconds at each load."""
    rows = []
    for key in dict.fromkeys(waited.key for waited in summary.samples.latency):
        waited = next(found for found in summary.samples.latency if found.key == key)
        results = summary.results
        rows.append(
            [
                TITLES[waited.system],
                f"{size_name(waited.workload.record_bytes)} {waited.workload.durability.value}",
                waited.load,
                si(results[f"{key}.rate_per_s"]),
                *(f"{results[f'{key}.{name}']:.2f}" for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")),
                f"{results[f'{key}.achieved_share']:.2f}",
            ]
        )
    headings = [
        "system",
        "records",
        "load",
        "records/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "rate kept",
    ]
    return Table("From due to received, open loop", headings, rows)


def costs(summary: Summary) -> Table:
    """CPU seconds of broker and clients for a gigabyte, and the broker's memory."""
    systems = systems_of(summary)
    rows = []
    for operation in ("produce", "consume"):
        for workload in workloads_of(summary):
            keys = [f"{operation}.{system}.{workload.name}" for system in systems]
            rows.append([f"{operation} {label(workload)}", *(_cost(summary, key) for key in keys)])
    return Table(
        "CPU seconds per GB (broker's memory, MB)",
        ["workload", *(TITLES[system] for system in systems)],
        rows,
    )


def limits(summary: Summary) -> Table:
    rows = [
        [name.replace("_gb_per_s", "").replace("_ms", "").replace("_", " "), f"{value:.2f}", _unit(name)]
        for name, value in summary.limits.items()
    ]
    return Table("Limits of this machine in the same run", ["limit", "measured", "unit"], rows)


def skipped(summary: Summary) -> Table:
    return Table("Skipped", ["what", "why"], [[what, why] for what, why in summary.skipped.items()])


def markdown(tables: Iterable[Table], heading: str = "###") -> str:
    """Tables for a README.

    >>> print(markdown([Table("T", ["a", "b"], [["1", "2 | 3"]])]), end="")
    ### T
    <BLANKLINE>
    | a | b |
    | --- | --- |
    | 1 | 2 \\| 3 |
    """
    return "\n".join(
        f"{heading} {table.title}\n\n"
        + "".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n"
            for row in (table.headings, ["---"] * len(table.headings), *table.rows)
        )
        for table in tables
    )


def machine_line(summary: Summary) -> str:
    """Where and when it was measured."""
    machine = summary.machine
    storage = machine.storage
    return (
        f"ringlog {summary.commit}, {summary.date}, scale {summary.scale}: {machine.cpu}, {machine.cores} cores that "
        f"brokers and clients share, {machine.memory_gib:g} GiB, {storage.file_system} on {storage.device} "
        f"({storage.write_cache}), Linux {machine.kernel}, Python {machine.python}"
    )


def systems_of(summary: Summary) -> list[str]:
    """The systems that were measured, in the order of their titles."""
    seen = {sample.system for sample in summary.samples.throughput}
    return [system for system in TITLES if system in seen]


def workloads_of(summary: Summary) -> list[Workload]:
    """The workloads that were measured at saturation, sorted by their axes."""
    seen = {sample.workload for sample in summary.samples.throughput}
    order: Callable[[Workload], tuple[int, int, int, str]] = lambda at: (  # noqa: E731
        at.record_bytes,
        at.partitions,
        at.producers,
        at.durability.value,
    )
    return sorted(seen, key=order)


def label(workload: Workload) -> str:
    """
    >>> from perf.compare.model import Durability
    >>> label(Workload(100, 16, 1, Durability.D2))
    '100B, 16 partitions, 1 producer, D2'
    """
    partitions = f"{workload.partitions:,} partition" + "s" * (workload.partitions > 1)
    producers = f"{workload.producers} producer" + "s" * (workload.producers > 1)
    return f"{size_name(workload.record_bytes)}, {partitions}, {producers}, {workload.durability.value}"


def si(value: float) -> str:
    """
    >>> si(5_512_345), si(41_234), si(310)
    ('5.51 M', '41.2 K', '310')
    """
    for many, unit in ((1e6, " M"), (1e3, " K")):
        if value >= many:
            return f"{value / many:.3g}{unit}"
    return f"{value:.3g}"


def _rate(summary: Summary, key: str) -> str:
    rate = summary.results.get(f"{key}.records_per_s")
    if rate is None:
        return "–"
    spread = summary.spreads.get(f"{key}.records_per_s")
    return si(rate) if spread is None else f"{si(rate)} ± {spread:.0%}"


def _cost(summary: Summary, key: str) -> str:
    cost = summary.results.get(f"{key}.cpu_s_per_gb")
    return "–" if cost is None else f"{cost:.1f} ({summary.results[f'{key}.broker_rss_mb']:.0f})"


def _unit(name: str) -> str:
    return "GB/s" if name.endswith("_gb_per_s") else "ms"
