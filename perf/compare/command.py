"""`python -m perf compare`: runs a comparison, shows its tables, writes JSON, report and history."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence

import click
import msgspec
from rich.console import Console
from rich.table import Table as Shown

from perf.compare import history
from perf.compare.html_page import page
from perf.compare.model import Samples
from perf.compare.plots import NoPlots, plots_of
from perf.compare.readme import put_into
from perf.compare.run import PARTS, Comparison
from perf.compare.scale import SCALES
from perf.compare.summary import Summary, summarise
from perf.compare.systems import PEERS
from perf.compare.tables import machine_line, markdown, tables_of
from perf.machine import describe, is_nvme
from perf.micro.report import commit_of

DEFAULT_DIR = "build/bench"
DEFAULT_JSON = "bench-results/compare.json"


@click.command()
@click.option(
    "--peers",
    "names",
    default="kafka,nats,redis,rabbitmq",
    show_default=True,
    help="Beside ringlog; '' for none.",
)
@click.option("--full", "scale", flag_value="full", help="Every axis, long rounds: about two hours.")
@click.option(
    "--quick", "scale", flag_value="quick", default=True, help="100 B and 1 KB, short rounds (default)."
)
@click.option("--tiny", "scale", flag_value="tiny", help="Only prove that everything runs.")
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Only this part; repeatable.")
@click.option("--rounds", type=int, help="Instead of the scale's own number.")
@click.option(
    "--within", "within_s", type=float, default=float("inf"), help="Begin nothing after so many seconds."
)
@click.option("--append", "adds", is_flag=True, help="Add rounds to those that are in the JSON file already.")
@click.option("--device", "parent", default=DEFAULT_DIR, show_default=True, help="Measure the disk under it.")
@click.option("--json", "json_path", default=DEFAULT_JSON, show_default=True, help="Where the figures go.")
@click.option("--report", "report_dir", help="Write index.html, table.md and PNG plots into this directory.")
@click.option("--history", "history_path", default=history.DEFAULT_HISTORY, show_default=True)
@click.option("--no-fetch", is_flag=True, help="Only peers that are here already; others are skipped.")
@click.option("--strict", is_flag=True, help="Exit with 1 when a goal is missed.")
def compare(
    names: str,
    scale: str,
    parts: Sequence[str],
    rounds: int | None,
    within_s: float,
    adds: bool,
    parent: str,
    json_path: str,
    report_dir: str | None,
    history_path: str,
    no_fetch: bool,
    strict: bool,
) -> None:
    """Measure ringlog beside its peers and the limits of this machine, at equal durability.

    \b
    python -m perf compare                                  # all peers, in about half an hour
    python -m perf compare --peers redis --part throughput --rounds 1
    python -m perf compare --full --device /mnt/nvme --report docs/perf
    """
    say = Console(stderr=True)
    os.makedirs(parent, exist_ok=True)
    warn(parent, say)
    chosen = SCALES[scale]
    samples = read_samples(json_path) if adds else Samples()
    directory = os.path.abspath(tempfile.mkdtemp(prefix="compare-", dir=parent))
    wanted = peer_names(names)
    commit, machine = commit_of(os.path.dirname(__file__)), describe(parent)
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")

    def summed() -> Summary:
        return summarise(samples, commit, today, chosen.name, machine)

    before = signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # brokers are stopped however this ends
    try:
        comparison = Comparison(
            chosen,
            wanted,
            directory,
            samples,
            lambda line: say.print(line, highlight=False, markup=False),
            lambda: write(summed(), json_path),
            fetch=not no_fetch,
            within_s=within_s,
        )
        comparison.run(parts or default_parts(scale), rounds or chosen.rounds)
    except KeyboardInterrupt:
        say.print("interrupted: what was measured so far is kept")
    finally:
        signal.signal(signal.SIGTERM, before)
        shutil.rmtree(directory, ignore_errors=True)
    summary = summed()
    write(summary, json_path)
    history.append(history.entry_of(summary), history_path)
    show(summary)
    if report_dir is not None:
        write_report(summary, report_dir, say)
    say.print(f"Written to {json_path}, {history_path}", highlight=False)
    for failed in comparison.undelivered:
        say.print(f"[red]not delivered:[/] {failed}", highlight=False)
    if comparison.undelivered or (strict and not all(goal.reached for goal in summary.goals)):
        sys.exit(1)


@click.command()
@click.option(
    "--json", "json_path", default=DEFAULT_JSON, show_default=True, help="The figures of a comparison."
)
@click.option("--report", "report_dir", default="docs/perf", show_default=True)
@click.option("--readme", "readme_path", help="Put the tables into this README, between its marks.")
def report(json_path: str, report_dir: str, readme_path: str | None) -> None:
    """Write the report of a comparison again, from its JSON.

    \b
    python -m perf report
    python -m perf report --json bench-results/compare.json --readme README.md
    """
    try:
        with open(json_path, "rb") as measured:
            summary = msgspec.json.decode(measured.read(), type=Summary)
    except FileNotFoundError:
        raise click.ClickException(
            f"{json_path} is not there: `python -m perf compare` writes it, or name another with --json"
        ) from None
    except msgspec.MsgspecError as wrong:
        raise click.ClickException(f"{json_path} holds no figures of a comparison: {wrong}") from None
    write_report(summary, report_dir, Console(stderr=True))
    if readme_path is not None:
        with open(readme_path, encoding="utf-8") as file:
            text = put_into(file.read(), summary)
        with open(readme_path, "w", encoding="utf-8") as file:
            file.write(text)


def default_parts(scale: str) -> Sequence[str]:
    """What is measured when nobody says."""
    return PARTS if scale == "full" else ("throughput", "latency")


def peer_names(text: str) -> list[str]:
    """ringlog, and the peers that are asked for.

    >>> peer_names("nats, redis"), peer_names("")
    (['ringlog', 'nats', 'redis'], ['ringlog'])
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise click.BadParameter(f"there is no peer {unknown[0]!r}; there are {', '.join(PEERS)}")
    return list(dict.fromkeys(["ringlog", *names]))


def warn(parent: str, say: Console) -> None:
    """Say when the directory cannot give figures that mean something elsewhere."""
    storage = describe(parent).storage
    if storage.is_memory:
        say.print(
            f"[yellow]{parent} is on {storage.file_system}: nothing is durable there, D2 means nothing.[/]"
        )
    elif not is_nvme(parent):
        say.print(
            f"[yellow]{parent} is on {storage.device}, not on NVMe: flushes may cost more or less there.[/]"
        )


def read_samples(json_path: str) -> Samples:
    """The samples of earlier runs; none when there is no such file."""
    if not os.path.exists(json_path):
        return Samples()
    with open(json_path, "rb") as file:
        return msgspec.json.decode(file.read(), type=Summary).samples


def write(summary: Summary, json_path: str) -> None:
    os.makedirs(os.path.dirname(json_path) or ".", exist_ok=True)
    with open(json_path, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n")


def write_report(summary: Summary, directory: str, say: Console) -> None:
    """The page with everything in it, the plots beside it, and the tables for the README."""
    os.makedirs(directory, exist_ok=True)
    try:
        plots = plots_of(summary)
    except NoPlots as missing:
        say.print(f"[yellow]{missing}[/]")
        plots = {}
    with open(os.path.join(directory, "index.html"), "w", encoding="utf-8") as file:
        file.write(page(summary, plots))
    with open(os.path.join(directory, "table.md"), "w", encoding="utf-8") as file:
        file.write(f"{machine_line(summary)}\n\n{markdown(tables_of(summary))}")
    for title, image in plots.items():
        with open(os.path.join(directory, f"{title.lower().replace(' ', '-')}.png"), "wb") as picture:
            picture.write(image)
    say.print(f"Report in {directory}/index.html", highlight=False)


def show(summary: Summary) -> None:
    console = Console()
    console.print(machine_line(summary), highlight=False, markup=False)
    for table in tables_of(summary):
        shown = Shown(*table.headings, title=table.title)
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
