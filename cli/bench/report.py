"""What a benchmark found: one line of JSON for programs, a few lines for people. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cli.acked import least_durable
from cli.bench.sketch import Sketch
from cli.counted import counted


@dataclass(slots=True)
class Outcome:
    """Records that were done, how long it took, and how long single ones took."""

    records: int = 0
    value_bytes: int = 0
    began_s: float = 0.0
    ended_s: float = 0.0
    latencies: Sketch = field(default_factory=Sketch)
    durability: str = ""
    """The least that was promised for any of the records."""

    @property
    def seconds(self) -> float:
        return max(self.ended_s - self.began_s, 1e-9)

    def merge(self, other: Outcome) -> None:
        """Add what was done beside it, by the same clock."""
        self.began_s = min(self.began_s, other.began_s) if self.records else other.began_s
        self.ended_s = max(self.ended_s, other.ended_s)
        self.records += other.records
        self.value_bytes += other.value_bytes
        self.latencies.merge(other.latencies)
        self.durability = least_durable((self.durability, other.durability))


def figures(what: str, outcome: Outcome, **extra: Any) -> dict[str, Any]:
    """The figures by name, as programs read them.

    >>> outcome = Outcome(records=10, value_bytes=2_000_000, began_s=5.0, ended_s=7.0, durability="flushed")
    >>> found = figures("produce", outcome)
    >>> found["records_per_s"], found["mb_per_s"], found["durability"]
    (5.0, 1.0, 'flushed')
    """
    seconds = outcome.seconds
    return {
        "bench": what,
        "records": outcome.records,
        "seconds": round(seconds, 9),
        "records_per_s": round(outcome.records / seconds, 1),
        "mb_per_s": round(outcome.value_bytes / seconds / 1e6, 3),
        "p50_ms": round(outcome.latencies.quantile_ms(0.5), 4),
        "p99_ms": round(outcome.latencies.quantile_ms(0.99), 4),
        "p999_ms": round(outcome.latencies.quantile_ms(0.999), 4),
        "max_ms": round(outcome.latencies.max_ms, 4),
        "durability": outcome.durability,
        **extra,
    }


def people_text(found: dict[str, Any], latency_of: str) -> str:
    """The figures as a person reads them.

    >>> outcome = Outcome(records=10, value_bytes=2_000_000, began_s=5.0, ended_s=7.0, durability="flushed")
    >>> print(people_text(figures("produce", outcome), "send to acknowledgement"), end="")
    10 records in 2.00 s, flushed
      5 records/s   1.0 MB/s
      send to acknowledgement: p50 0.000 ms   p99 0.000 ms   p99.9 0.000 ms   longest 0.000 ms
    """
    how = f", {found['durability']}" if found["durability"] else ""
    so_far = "; interrupted, so far:" if found.get("interrupted") else ""
    return (
        f"{counted(found['records'], 'record')} in {found['seconds']:.2f} s{how}{so_far}\n"
        f"  {found['records_per_s']:,.0f} records/s   {found['mb_per_s']:,.1f} MB/s\n"
        f"  {latency_of}: p50 {found['p50_ms']:.3f} ms   p99 {found['p99_ms']:.3f} ms   "
        f"p99.9 {found['p999_ms']:.3f} ms   longest {found['max_ms']:.3f} ms\n"
    )


def speed_text(outcome: Outcome, now_s: float) -> str:
    """What stands beside the progress bar."""
    seconds = max(now_s - outcome.began_s, 1e-9)
    rate, mb = outcome.records / seconds, outcome.value_bytes / seconds / 1e6
    return f"{outcome.records:,} records  {rate:,.0f}/s  {mb:,.0f} MB/s"
