"""The plots of a comparison, as PNG images. Needs matplotlib (the extra `plots`)."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

from perf.compare.model import Workload
from perf.compare.summary import Summary
from perf.compare.tables import TITLES, systems_of, workloads_of

COLOURS = {
    "ringlog": "#0b6e4f",
    "ringlog-single": "#6fb98f",
    "kafka": "#b5502b",
    "kafka-confluent": "#e0a080",
    "kafka-aiokafka": "#f0cdbb",
    "nats": "#3f5fa8",
    "redis": "#a03050",
    "rabbitmq": "#8a6d1f",
}
PERCENTILES = ("p50_ms", "p99_ms", "p999_ms", "max_ms")


class NoPlots(Exception):
    """There is no matplotlib here."""


def plots_of(summary: Summary) -> dict[str, bytes]:
    """Images by title; a plot of which nothing was measured is left out."""
    try:
        import matplotlib
    except ImportError as missing:
        raise NoPlots("the report has no plots: pip install 'matplotlib>=3.8', or make peers") from missing
    matplotlib.use("Agg")
    drawn: dict[str, Callable[[Summary], bytes | None]] = {
        "Throughput": lambda found: _bars(found, "records_per_s", "records/s", log=True),
        "Latency percentiles": _latency,
        "Cost": lambda found: _bars(
            found, "cpu_s_per_gb", "CPU seconds per GB, broker and clients", log=True
        ),
        "Share of the physical limit": lambda found: _bars(found, "share_of_bound", "share of the bound"),
        "Scaling": _scaling,
    }
    images = {title: draw(summary) for title, draw in drawn.items()}
    return {title: image for title, image in images.items() if image is not None}


def _bars(summary: Summary, metric: str, unit: str, *, log: bool = False) -> bytes | None:
    """Groups of bars: a group for each workload that several systems share, a bar for each system."""
    systems = systems_of(summary)
    workloads = [workload for workload in workloads_of(summary) if workload.producers == 1]
    if not workloads:
        return None
    figure, axes = _figure(2, height=3.4)
    for axis, operation in zip(axes, ("produce", "consume"), strict=True):
        width = 0.8 / max(len(systems), 1)
        for place, system in enumerate(systems):
            values = [
                summary.results.get(f"{operation}.{system}.{at.name}.{metric}", 0.0) for at in workloads
            ]
            positions = [group + place * width for group in range(len(workloads))]
            axis.bar(positions, values, width, label=TITLES[system], color=COLOURS[system])
        axis.set_xticks([group + 0.4 - width / 2 for group in range(len(workloads))])
        axis.set_xticklabels([_short(workload) for workload in workloads], fontsize=8)
        axis.set_ylabel(unit, fontsize=8)
        axis.set_title(operation, fontsize=10, loc="left")
        if log:
            axis.set_yscale("log")
    axes[0].legend(fontsize=7, ncols=3)
    return _png(figure)


def _latency(summary: Summary) -> bytes | None:
    """One line for each system and load: percentiles to the right, milliseconds on a log scale."""
    found = {
        (waited.workload.record_bytes, waited.workload.durability.value) for waited in summary.samples.latency
    }
    if not found:
        return None
    panels = sorted(found)
    figure, axes = _figure(len(panels), height=3.0)
    styles = {"10pct": "-", "50pct": "--", "80pct": ":", "same-rate": "-."}
    for axis, (size, durability) in zip(axes, panels, strict=True):
        keys = dict.fromkeys(
            (waited.key, waited.system, waited.load)
            for waited in summary.samples.latency
            if (waited.workload.record_bytes, waited.workload.durability.value) == (size, durability)
        )
        for key, system, load in keys:
            values = [summary.results[f"{key}.{name}"] for name in PERCENTILES]
            title = f"{TITLES[system]}, {load}"
            axis.plot(
                range(4), values, styles[load], color=COLOURS[system], label=title, marker="o", markersize=3
            )
        axis.set_yscale("log")
        axis.set_xticks(range(4))
        axis.set_xticklabels(["p50", "p99", "p99.9", "max"], fontsize=8)
        axis.set_ylabel("ms", fontsize=8)
        axis.set_title(f"{size} B, {durability}", fontsize=10, loc="left")
        axis.legend(fontsize=6, ncols=2)
    return _png(figure)


def _scaling(summary: Summary) -> bytes | None:
    """Produce rates along each axis on which more than one point was measured."""
    flushed = [at for at in workloads_of(summary) if at.durability.value == "D2"]
    lines: dict[str, Callable[[Workload], int]] = {
        "partitions": lambda at: at.partitions,
        "record_bytes": lambda at: at.record_bytes,
        "producers": lambda at: at.producers,
    }
    chosen = {name: _along(flushed, name) for name in lines}
    chosen = {name: points for name, points in chosen.items() if len(points) > 1}
    if not chosen:
        return None
    figure, axes = _figure(len(chosen), height=2.8)
    for axis, (name, points) in zip(axes, chosen.items(), strict=True):
        for system in systems_of(summary):
            metric = "mb_per_s" if name == "record_bytes" else "records_per_s"
            values = {
                lines[name](at): summary.results[key]
                for at in points
                if (key := f"produce.{system}.{at.name}.{metric}") in summary.results
            }
            axis.plot(list(values), list(values.values()), "o-", color=COLOURS[system], label=TITLES[system])
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel(name.replace("_", " "), fontsize=8)
        axis.set_ylabel("MB/s" if name == "record_bytes" else "records/s", fontsize=8)
        axis.legend(fontsize=6)
    return _png(figure)


def _along(workloads: Sequence[Workload], axis: str) -> list[Workload]:
    """The workloads that differ from the most common one along one axis only."""
    others = [name for name in ("partitions", "record_bytes", "producers") if name != axis]
    shared: dict[tuple[int, ...], list[Workload]] = {}
    for at in workloads:
        shared.setdefault(tuple(getattr(at, name) for name in others), []).append(at)
    return max(shared.values(), key=len, default=[])


def _short(workload: Workload) -> str:
    size, partitions, _, durability = workload.name.split(".")
    return f"{size}\n{partitions}\n{durability}"


def _figure(panels: int, height: float) -> tuple[Any, list[Any]]:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        panels, 1, figsize=(10, height * panels), squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.grid(axis="y", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes.flat)


def _png(figure: Any) -> bytes:
    from matplotlib import pyplot

    into = io.BytesIO()
    figure.savefig(into, format="png", dpi=110, metadata={"Software": None})
    pyplot.close(figure)
    return into.getvalue()
