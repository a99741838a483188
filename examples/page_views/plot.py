"""Draws a run: views per second in and out, and how far the queries were behind."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib

from examples.page_views.watch import Sample

matplotlib.use("Agg")
_OVER = 4
"""Samples that a rate is taken over: the queries commit by the second, which would only draw a saw."""


def draw(samples: Sequence[Sample], path: str) -> None:
    """Write a PNG."""
    import matplotlib.pyplot as plt

    figure, (rates, lags) = plt.subplots(2, 1, figsize=(9, 6.5), sharex=True, constrained_layout=True)
    times = [sample.at_s for sample in samples]
    rates.plot(times, _rates(times, [s.produced for s in samples]), color="black", label="produced")
    for number, group in enumerate(samples[-1].lags):
        color = f"C{number}"
        read = [sample.produced - sample.lags[group] for sample in samples]
        rates.plot(times, _rates(times, read), color=color, label=f"read by {group}")
        lags.plot(times, [sample.lags[group] for sample in samples], color=color, label=group)
    rates.set(title="Page views through ringlog and Spark", ylabel="views per second")
    lags.set(xlabel="seconds", ylabel="lag (views not yet read)")
    for axes in (rates, lags):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.legend(loc="upper left")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _rates(times: Sequence[float], totals: Sequence[int]) -> list[float]:
    found = []
    for at in range(len(times)):
        before = max(0, at - _OVER)
        seconds = times[at] - times[before]
        found.append((totals[at] - totals[before]) / seconds if seconds else 0.0)
    return found
