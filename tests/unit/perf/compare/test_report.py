"""The report of fixed samples is the golden one; history keeps a line for each run."""

from __future__ import annotations

import importlib.util
import io
import json
import os
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from perf.compare import command, history
from perf.compare.html_page import page
from perf.compare.model import Durability, Latency, Samples, Throughput, Workload
from perf.compare.plots import NoPlots, plots_of
from perf.compare.readme import BEGIN, END, put_into
from perf.compare.summary import summarise
from perf.compare.tables import machine_line, markdown, tables_of
from perf.machine import Machine, Storage

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "compare"
MACHINE = Machine(
    "A CPU", 2, 24.0, "6.1", "3.11", 0.0, Storage("ext4", "rw", "/dev/nvme0n1", "disk", "write back")
)
RATES = {"ringlog": 5e6, "kafka": 8e5, "kafka-confluent": 7e5, "nats": 2e5, "redis": 3.5e5}
LIMITS = {
    "memcpy_gb_per_s": 10.0,
    "tcp_64k_gb_per_s": 2.0,
    "tcp_1m_gb_per_s": 3.0,
    "disk_direct_gb_per_s": 1.5,
    "durable_4k_ms": 0.4,
    "durable_batch_gb_per_s": 1.0,
}


def fixed():
    samples = Samples(skipped={"rabbitmq": "erl is missing; it needs Erlang"})
    for number, slow in enumerate((1.0, 0.9, 1.1)):
        samples.limits.append({"round": number, **LIMITS})
        for system, per_s in RATES.items():
            for durability, share in ((Durability.D1, 1.0), (Durability.D2, 0.5)):
                workload = Workload(100, 16, 1, durability)
                for operation in ("produce", "consume"):
                    got = per_s * slow * share
                    samples.throughput.append(
                        Throughput(
                            number, system, workload, operation, 10_000_000, got, 3.0, 2.0, 400_000_000
                        )
                    )
                if system != "kafka":
                    wait_ms = 5e6 / per_s * slow
                    samples.latency.append(
                        Latency(
                            number,
                            system,
                            workload,
                            "10pct",
                            per_s / 10,
                            per_s / 10,
                            wait_ms,
                            wait_ms * 3,
                            40.0,
                            50.0,
                        )
                    )
    return summarise(samples, "0123456789ab", "2026-01-02", "quick", MACHINE)


def expect(name, text):
    path = GOLDEN / name
    if os.environ.get("RINGLOG_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def test_the_tables_are_the_golden_ones():
    summary = fixed()
    expect("table.md", f"{machine_line(summary)}\n\n{markdown(tables_of(summary))}")


def test_the_page_is_the_golden_one_and_needs_nothing_beside_it():
    text = page(fixed(), {"Throughput": b"not really an image"})
    expect("index.html", text)
    assert "http:" not in text
    assert "https:" not in text
    assert "<script" not in text


def test_every_plot_is_a_png_and_without_matplotlib_one_line_says_what_to_install():
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(NoPlots, match="pip install"):
            plots_of(fixed())
        return
    plots = plots_of(fixed())
    assert {"Throughput", "Latency percentiles", "Cost", "Share of the physical limit"} <= plots.keys()
    assert all(image.startswith(b"\x89PNG") and len(image) > 5_000 for image in plots.values())


def test_history_keeps_runs_in_order_and_the_last_of_one_commit_and_day(tmp_path):
    path = str(tmp_path / "sub" / "history.ndjson")
    first = history.entry_of(fixed())
    history.append(first, path)
    later = history.Entry(**{**_fields(first), "commit": "bbbb", "ratios": {"x/y": 2.0}})
    history.append(later, path)
    again = history.Entry(**{**_fields(later), "ratios": {"x/y": 3.0}})
    history.append(again, path)
    assert history.read(path) == [first, again]
    assert len((tmp_path / "sub" / "history.ndjson").read_text().splitlines()) == 2


def _fields(entry):
    return {name: getattr(entry, name) for name in entry.__struct_fields__}


def test_the_history_command_shows_figures_by_name(tmp_path):
    path = str(tmp_path / "history.ndjson")
    missing = CliRunner().invoke(history.history, ["--file", path])
    assert missing.exit_code == 1
    assert "perf compare" in missing.output
    history.append(history.entry_of(fixed()), path)
    shown = CliRunner().invoke(history.history, ["--file", path, "--json", "--name", "produce.*/nats-D2"])
    assert json.loads(shown.output) == {
        "commits": ["0123456789ab"],
        "figures": {"produce.100B.p16.x1.ringlog-D2/nats-D2": [25.0]},
    }


def test_history_is_plotted_or_one_line_says_what_to_install(tmp_path):
    path, picture = str(tmp_path / "history.ndjson"), tmp_path / "history.png"
    history.append(history.entry_of(fixed()), path)
    drawn = CliRunner().invoke(history.history, ["--file", path, "--plot", str(picture)])
    if importlib.util.find_spec("matplotlib") is None:
        assert drawn.exit_code == 1 and "pip install" in drawn.output and not picture.exists()
    else:
        assert drawn.exit_code == 0, drawn.output
        assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("file_system", "device", "says"),
    [("tmpfs", "tmpfs", "nothing is durable there"), ("ext4", "vda", "not on NVMe"), ("xfs", "nvme0n1", "")],
)
def test_a_directory_that_is_not_on_nvme_is_warned_of(tmp_path, monkeypatch, file_system, device, says):
    storage = Storage(file_system, "rw", f"/dev/{device}", "disk", "write back")
    monkeypatch.setattr(
        command, "describe", lambda directory: msgspec.structs.replace(MACHINE, storage=storage)
    )
    monkeypatch.setattr(command, "is_nvme", lambda directory: device.startswith("nvme"))
    said = Console(record=True, width=200, file=io.StringIO())
    command.warn(str(tmp_path), said)
    text = said.export_text()
    assert says in text and bool(text.strip()) == bool(says)


def test_the_readme_gets_the_tables_between_its_marks_and_keeps_the_rest():
    before = f"# Title\n\n{BEGIN}\nold\n{END}\n\n## After\n"
    after = put_into(before, fixed())
    assert after.startswith(f"# Title\n\n{BEGIN}\n")
    assert after.endswith(f"{END}\n\n## After\n")
    assert "old" not in after
    assert "| produce 100B: ringlog D2 ÷ Kafka D2 | 6.25 | ≥ 10 × | 25.0 | missed |" in after
    assert put_into(after, fixed()) == after


def test_a_readme_without_marks_is_refused():
    with pytest.raises(ValueError, match="compare:begin"):
        put_into("# Title\n", fixed())


def test_of_a_single_round_no_spread_is_shown():
    several = fixed()
    once = msgspec.structs.replace(several, spreads={})
    assert "±" in markdown(tables_of(several)) and "±" not in markdown(tables_of(once))
    assert "5 M |" in markdown(tables_of(once))


def test_history_shows_names_whole_on_a_narrow_terminal(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = str(tmp_path / "history.ndjson")
    name = "produce.100B.p16.x1.a-name-that-is-longer-than-a-line-of-a-terminal-has-room-for.ringlog-D2/kafka-best-D1"
    for commit in ("aaaa", "bbbb", "cccc"):
        history.append(
            history.Entry(**{**_fields(history.entry_of(fixed())), "commit": commit, "ratios": {name: 2.5}}),
            path,
        )
    shown = CliRunner().invoke(history.history, ["--file", path])
    assert shown.exit_code == 0, shown.output
    [line] = [line for line in shown.output.splitlines() if name in line]
    assert line.count("2.5") == 3


@pytest.mark.parametrize(
    ("content", "said"), [(None, "is not there"), (b"{}", "holds no figures"), (b"x", "holds no figures")]
)
def test_a_report_of_nothing_says_what_is_missing(tmp_path, content, said):
    path = tmp_path / "compare.json"
    if content is not None:
        path.write_bytes(content)
    ended = CliRunner().invoke(command.report, ["--json", str(path), "--report", str(tmp_path / "out")])
    assert (ended.exit_code, isinstance(ended.exception, SystemExit)) == (1, True)
    assert f"{path} {said}" in ended.output
    assert not (tmp_path / "out").exists()
