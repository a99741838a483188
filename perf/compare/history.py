"""Results of comparisons over time: a line of JSON for each run, shown by `python -m perf history`."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Sequence

import click
import msgspec
from rich.console import Console
from rich.table import Table

from perf.compare.summary import Summary

DEFAULT_HISTORY = "bench-results/history.ndjson"
_WIDTH_MAX = 10_000
DEFAULT_NAMES = ("*.ringlog-D2/kafka-best-D1", "*.10pct.ringlog-D2/kafka-confluent-D2")


class Entry(msgspec.Struct, frozen=True):
    """One run."""

    commit: str
    date: str
    scale: str
    cpu: str
    cores: int
    results: dict[str, float]
    limits: dict[str, float]
    ratios: dict[str, float]


def entry_of(summary: Summary) -> Entry:
    """What is kept of a run: all figures, without the samples they come from."""
    return Entry(
        commit=summary.commit,
        date=summary.date,
        scale=summary.scale,
        cpu=summary.machine.cpu,
        cores=summary.machine.cores,
        results=summary.results,
        limits=summary.limits,
        ratios=summary.ratios,
    )


def append(entry: Entry, path: str) -> None:
    """Add a run to the file, in place of one of the same commit, date and scale that was not finished yet."""
    kept = [found for found in read(path) if (found.commit, found.date, found.scale) != _identity(entry)]
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    unfinished = f"{path}.new"
    with open(unfinished, "wb") as file:
        file.writelines(msgspec.json.encode(found) + b"\n" for found in [*kept, entry])
    os.replace(unfinished, path)


def _identity(entry: Entry) -> tuple[str, str, str]:
    return entry.commit, entry.date, entry.scale


def read(path: str) -> list[Entry]:
    """The runs of a file, oldest first; none when there is no file."""
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        return [msgspec.json.decode(line, type=Entry) for line in file if line.strip()]


def series(entries: Iterable[Entry], names: Sequence[str]) -> dict[str, list[float | None]]:
    """The figures whose names fit, each with its value in every run, None where it was not measured.

    >>> one = Entry("a", "2026-01-01", "quick", "x", 2, {"produce.x": 3.0}, {}, {"p/q": 2.0})
    >>> two = Entry("b", "2026-01-02", "quick", "x", 2, {}, {}, {"p/q": 4.0})
    >>> series([one, two], ["p*"])
    {'p/q': [2.0, 4.0], 'produce.x': [3.0, None]}
    """
    runs = [{**entry.results, **entry.limits, **entry.ratios} for entry in entries]
    found = sorted({name for run in runs for name in run})
    chosen = [name for name in found if any(fnmatch.fnmatchcase(name, pattern) for pattern in names)]
    return {name: [run.get(name) for run in runs] for name in chosen}


@click.command()
@click.option(
    "--file", "path", default=DEFAULT_HISTORY, show_default=True, help="The runs, a line of JSON each."
)
@click.option("--name", "names", multiple=True, help="Figures to show; may hold *. Repeatable.")
@click.option("--last", default=12, show_default=True, help="Only so many runs.")
@click.option("--plot", "plot_path", help="Also draw them into this PNG file (needs matplotlib).")
@click.option("--json", "as_json", is_flag=True, help="For programs: figures by name, a value for each run.")
def history(path: str, names: Sequence[str], last: int, plot_path: str | None, as_json: bool) -> None:
    """Show how figures of comparisons have changed from commit to commit.

    \b
    python -m perf history
    python -m perf history --name 'produce.ringlog.*.records_per_s' --plot history.png
    """
    entries = read(path)[-last:]
    if not entries:
        raise click.ClickException(f"{path} holds no runs yet: `python -m perf compare` adds one")
    found = series(entries, names or DEFAULT_NAMES)
    if not found:
        raise click.ClickException("no figure has such a name; --name '*' shows them all")
    if as_json:
        click.echo(msgspec.json.encode({"commits": [entry.commit for entry in entries], "figures": found}))
    else:
        table = Table("", *(f"{entry.commit[:10]}\n{entry.date[:10]}" for entry in entries))
        for name, values in found.items():
            table.add_row(name, *("" if value is None else f"{value:.4g}" for value in values))
        print_whole(table)
    if plot_path is not None:
        draw(entries, found, plot_path)


def print_whole(table: Table, console: Console | None = None) -> None:
    """Print a table as wide as it is: a name that is cut cannot be given to --name."""
    console = console or Console()
    wide = console.options.update(max_width=_WIDTH_MAX)
    console.width = max(console.width, console.measure(table, options=wide).maximum)
    console.print(table)


def draw(entries: Sequence[Entry], found: dict[str, list[float | None]], path: str) -> None:
    """A line for each figure over the runs."""
    try:
        import matplotlib
    except ImportError as missing:
        raise click.ClickException(
            "plots need matplotlib: pip install 'matplotlib>=3.8', or make peers"
        ) from missing
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(10, 5), layout="constrained")
    for name, values in found.items():
        axis.plot(range(len(values)), [float("nan") if v is None else v for v in values], "o-", label=name)
    axis.set_xticks(range(len(entries)))
    axis.set_xticklabels([f"{entry.commit[:8]}\n{entry.date[:10]}" for entry in entries], fontsize=7)
    axis.set_yscale("log")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
