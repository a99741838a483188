"""What the samples of a comparison come to: medians, spreads, shares of the bound, ratios, goals. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perf.compare.bound import bound_records_per_s
from perf.compare.model import Samples, Throughput, size_name
from perf.machine import Machine
from perf.micro.result import Goal
from perf.stats import median, spread

GOAL_SIZES = (100, 1_000)
OURS = "ringlog"
KAFKA_CLIENTS = ("kafka", "kafka-confluent")


class Reached(msgspec.Struct, frozen=True):
    """A goal and what became of it."""

    what: str
    ratio: str
    """The ratio that it is held against, by name."""
    value: float
    goal: Goal
    reached: bool
    allowed: float | None = None
    """Of produced records: the ratio if ringlog took all that the machine's limits in the same run allow."""

    @property
    def is_beyond(self) -> bool:
        """Whether nobody could reach it on this machine: the peer is too fast for its limits."""
        return self.allowed is not None and not self.goal.is_reached(self.allowed, self.allowed)


class Summary(msgspec.Struct, frozen=True):
    """A comparison for programs. `results`, `limits` and `ratios` map names to numbers."""

    commit: str
    date: str
    scale: str
    machine: Machine
    results: dict[str, float]
    spreads: dict[str, float]
    limits: dict[str, float]
    ratios: dict[str, float]
    goals: list[Reached]
    skipped: dict[str, str]
    samples: Samples


def summarise(samples: Samples, commit: str, date: str, scale: str, machine: Machine) -> Summary:
    """All figures of a comparison."""
    results, spreads = results_of(samples)
    ratios = ratios_of(samples)
    return Summary(
        commit=commit,
        date=date,
        scale=scale,
        machine=machine,
        results=results,
        spreads=spreads,
        limits=limits_of(samples),
        ratios=ratios,
        goals=goals_of(ratios, results),
        skipped=samples.skipped,
        samples=samples,
    )


def limits_of(samples: Samples) -> dict[str, float]:
    """The median of each limit over the rounds."""
    names = [name for name in (samples.limits[0] if samples.limits else {}) if name != "round"]
    return {name: median([found[name] for found in samples.limits]) for name in names}


def results_of(samples: Samples) -> tuple[dict[str, float], dict[str, float]]:
    """(medians, spreads) by name; one round has no spread. A share of the bound pairs what one round measured."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    limits = {int(found["round"]): found for found in samples.limits}
    for sample in samples.throughput:
        values[f"{sample.key}.records_per_s"].append(sample.records_per_s)
        values[f"{sample.key}.mb_per_s"].append(sample.mb_per_s)
        values[f"{sample.key}.cpu_s_per_gb"].append(sample.cpu_s_per_gb)
        values[f"{sample.key}.broker_rss_mb"].append(sample.broker_rss_bytes / 1e6)
        if sample.delivered_share < 1:
            values[f"{sample.key}.delivered_share"].append(sample.delivered_share)
        if sample.round in limits:
            bound = bound_records_per_s(limits[sample.round], sample.workload, sample.operation)
            values[f"{sample.key}.share_of_bound"].append(sample.records_per_s / bound)
    for waited in samples.latency:
        values[f"{waited.key}.rate_per_s"].append(waited.records_per_s)
        values[f"{waited.key}.achieved_share"].append(waited.achieved_per_s / waited.records_per_s)
        for percentile in ("p50_ms", "p99_ms", "p999_ms", "max_ms"):
            values[f"{waited.key}.{percentile}"].append(getattr(waited, percentile))
    return (
        {name: median(found) for name, found in values.items()},
        {name: spread(found) for name, found in values.items() if len(found) > 1 and median(found)},
    )


def ratios_of(samples: Samples) -> dict[str, float]:
    """Ours over each peer's, paired by round: at equal durability, and our D2 against their D1.

    `kafka-best` is the faster of Kafka's clients in each round, so that no slow client flatters us.
    """
    found: dict[str, float] = {}
    throughput = [*samples.throughput, *_best_of_kafka(samples.throughput)]
    for sample in _one_of_each(throughput):
        if sample.system != OURS:
            continue
        at = sample.workload
        for other in _one_of_each(throughput):
            theirs = other.workload
            same = (theirs.record_bytes, theirs.partitions, theirs.producers, other.operation) == (
                at.record_bytes,
                at.partitions,
                at.producers,
                sample.operation,
            )
            fair = theirs.durability is at.durability or (
                at.durability.value == "D2" and theirs.durability.value == "D1"
            )
            if other.system == OURS or not same or not fair:
                continue
            name = (
                f"{sample.operation}.{size_name(at.record_bytes)}.p{at.partitions}.x{at.producers}."
                f"ringlog-{at.durability.value}/{other.system}-{theirs.durability.value}"
            )
            ratio = _paired(_rates(throughput, sample.key), _rates(throughput, other.key))
            if ratio is not None:
                found[name] = ratio
    return found | _latency_ratios(samples)


def _latency_ratios(samples: Samples) -> dict[str, float]:
    p99s: defaultdict[tuple[str, int, str, str], dict[int, float]] = defaultdict(dict)
    for waited in samples.latency:
        at = waited.workload
        p99s[waited.system, at.record_bytes, at.durability.value, waited.load][waited.round] = waited.p99_ms
    found = {}
    for (system, size, durability, load), ours in p99s.items():
        if system != OURS:
            continue
        for (other, their_size, their_durability, their_load), theirs in p99s.items():
            if other == OURS or (their_size, their_load) != (size, load):
                continue
            if their_durability == durability or (durability, their_durability) == ("D2", "D1"):
                ratio = _paired(ours, theirs)
                if ratio is not None:
                    name = f"p99.{size_name(size)}.{load}.ringlog-{durability}/{other}-{their_durability}"
                    found[name] = ratio
    return found


def goals_of(ratios: Mapping[str, float], results: Mapping[str, float]) -> list[Reached]:
    """The goals that this run can speak of.

    >>> goals_of({"p99.100B.10pct.ringlog-D2/kafka-confluent-D2": 0.4}, {})[0].reached
    True
    >>> ratio, share = "produce.1KB.p16.x1.ringlog-D2/kafka-best-D2", "produce.ringlog.1KB.p16.x1.D2.share_of_bound"
    >>> goal = goals_of({ratio: 5.1}, {share: 0.85})[0]
    >>> goal.goal.text, goal.reached, goal.allowed, goal.is_beyond
    ('≥ 10 ×', False, 6.0, True)
    """
    wanted: list[tuple[str, str, Goal]] = []
    for size in map(size_name, GOAL_SIZES):
        for operation in ("produce", "consume"):
            what = f"{operation} {size}: ringlog D2 ÷ Kafka D1"
            wanted.append((what, f"{operation}.{size}.*.ringlog-D2/kafka-best-D1", Goal.at_least(2, "×")))
        what = f"produce {size}: ringlog D2 ÷ Kafka D2"
        wanted.append((what, f"produce.{size}.*.ringlog-D2/kafka-best-D2", Goal.at_least(10, "×")))
        for durability in ("D1", "D2"):
            what = f"p99 of {size} at 10 % load: ringlog D2 ÷ Kafka {durability}"
            name = f"p99.{size}.10pct.ringlog-D2/kafka-confluent-{durability}"
            wanted.append((what, name, Goal.at_most(0.5, "×")))
        for operation in ("produce", "consume"):
            what = f"{operation} {size} from Python: ringlog D2 ÷ confluent-kafka D1"
            name = f"{operation}.{size}.*.ringlog-D2/kafka-confluent-D1"
            wanted.append((what, name, Goal.at_least(5, "×")))
    found = []
    for what, name, goal in wanted:
        key = _common(name, ratios)
        if key is not None:
            value = ratios[key]
            allowed = _allowed(key, value, results)
            found.append(Reached(what, key, value, goal, goal.is_reached(value, value), allowed))
    return found


def _allowed(ratio: str, value: float, results: Mapping[str, float]) -> float | None:
    """The ratio at ringlog's bound instead of its rate. Reading back has none: a node uses no wire to a
    consumer of its host."""
    operation, _, workload = ratio.partition("/")[0].replace(f"{OURS}-", "").partition(".")
    share = results.get(f"{operation}.{OURS}.{workload}.share_of_bound")
    return value / share if share and operation == "produce" else None


def _common(name: str, ratios: Mapping[str, float]) -> str | None:
    """The ratio of a name whose `*` stands for the partitions and producers that all workloads share."""
    start, star, end = name.partition("*")
    if not star:
        return name if name in ratios else None
    fits = [key for key in ratios if key.startswith(start) and key.endswith(end) and ".x1." in key]
    preferred = [key for key in fits if ".p16." in key]
    return next(iter(preferred or fits), None)


def _best_of_kafka(samples: Iterable[Throughput]) -> list[Throughput]:
    """A system `kafka-best`: in each round the faster of Kafka's clients."""
    best: dict[tuple[int, str], Throughput] = {}
    for sample in samples:
        if sample.system in KAFKA_CLIENTS:
            named = msgspec.structs.replace(sample, system="kafka-best")
            known = best.setdefault((sample.round, named.key), named)
            if sample.records_per_s > known.records_per_s:
                best[sample.round, named.key] = named
    return list(best.values())


def _one_of_each(samples: Iterable[Throughput]) -> Sequence[Throughput]:
    return list({sample.key: sample for sample in samples}.values())


def _rates(samples: Iterable[Throughput], key: str) -> dict[int, float]:
    return {sample.round: sample.records_per_s for sample in samples if sample.key == key}


def _paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    rounds = sorted(ours.keys() & theirs.keys())
    return median([ours[number] / theirs[number] for number in rounds]) if rounds else None
