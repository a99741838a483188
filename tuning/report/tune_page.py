"""The page of `ringlog tune`: what was measured, what is advised, and what it gained. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tuning.advice.curves import DEPTH_SIZE_BYTES, rates_by_depth, writes
from tuning.advice.setting import Advice, Setting, Value
from tuning.amounts import binary_text, bytes_text
from tuning.compare import Compared
from tuning.doctor.diagnose import diagnose
from tuning.doctor.facts import SystemFacts
from tuning.probe.measured import BUFFERED, DSYNC, FLUSH, FRESH, REUSED, Facts, Measured
from tuning.report.page import heading, page, paragraphs, plots, table
from tuning.report.svg import Bar, Series, Text, bar_chart, line_chart

_BYTE_SETTINGS = ("group_bytes", "tail_bytes_per_shard", "segment.bytes", "preallocate_bytes_max")
_ZERO_MEANS = {"shards": "one per core", "disk_depth": "no bound", "spin_us": "sleep"}


def tune_page(facts: Facts, advice: Advice, compared: Sequence[Compared] = ()) -> str:
    """A whole page, which needs nothing but itself."""
    measured = facts.measured
    parts = [
        heading(f"Settings for the policy “{advice.policy}”"),
        _settings(advice.settings),
        paragraphs(advice.notes),
    ]
    if compared:
        parts += [heading("What they gain: the same load before and after"), _compared(compared)]
    parts += [
        heading("What was measured"),
        plots([*_write_plots(measured), _read_plot(measured), _wire_plot(measured), _reach_plot(measured)]),
        heading("What the doctor says"),
        _findings(facts.system),
    ]
    took = f"probed {facts.probed_at} for {measured.took_s:g} s, disk engine {measured.engine}"
    return page("ringlog on this machine", f"{machine_text(facts.system)}; {took}", parts)


def machine_text(system: SystemFacts) -> str:
    """The machine in a line."""
    storage = system.storage
    disk = " ".join(
        part for part in (storage.file_system, "on", storage.device or "?", storage.model) if part
    )
    memory = f"{system.memory_total_bytes / 2**30:.0f} GiB"
    return f"{len(system.cores)} cores {system.cpu_model or ''}, {memory}, {disk}, Linux {system.kernel}"


def value_text(name: str, value: Value) -> str:
    """A value as people read it.

    >>> value_text("group_bytes", 1 << 20), value_text("pin", True), value_text("net_cores", "")
    ('1 MiB', 'yes', '-')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == 0 and name in _ZERO_MEANS:
        return _ZERO_MEANS[name]
    if isinstance(value, int) and name in _BYTE_SETTINGS:
        return binary_text(value)
    return str(value) or "-"


def _settings(settings: Sequence[Setting]) -> str:
    rows = [(s.name, value_text(s.name, s.value), value_text(s.name, s.default), s.reason) for s in settings]
    changed = [number for number, setting in enumerate(settings) if setting.changes]
    return table(("setting", "advised", "default", "why"), rows, numbers=(1, 2), marked=changed)


def _compared(compared: Sequence[Compared]) -> str:
    rows = [
        (c.load.name, f"{c.before:.3g} {c.load.unit}", f"{c.after:.3g} {c.load.unit}", f"{c.gain:.2f} ×")
        for c in compared
    ]
    drawn = [
        bar_chart(
            f"{c.load.name} ({'more' if c.load.more_is_better else 'less'} is better)",
            [
                Bar(f"{name}, round {number}", value, f"{value:.3g} {c.load.unit}", colour)
                for colour, (name, values) in enumerate(
                    (("before", c.before_rounds), ("after", c.after_rounds))
                )
                for number, value in enumerate(values, 1)
            ],
        )
        for c in compared
    ]
    return table(("load", "before", "after", "as good"), rows, numbers=(1, 2, 3)) + "\n" + plots(drawn)


def _write_plots(measured: Measured) -> list[str]:
    depths = sorted({point.depth for point in writes(measured)})
    by_size = [
        Series(f"{depth} at a time", [(p.size_bytes, p.bytes_per_s) for p in writes(measured, depth=depth)])
        for depth in depths
    ]
    methods = [
        Series(
            f"{name}, {space}",
            [(p.size_bytes, p.p50_us) for p in writes(measured, method=method, space=space, depth=1)],
        )
        for method, name in (
            (DSYNC, "O_DIRECT + RWF_DSYNC"),
            (FLUSH, "O_DIRECT + flush"),
            (BUFFERED, "page cache + flush"),
        )
        for space in (FRESH, REUSED)
    ]
    by_depth = rates_by_depth(measured)
    return [
        _line("Durable writes: rate by size", by_size, "size of a write", "bytes/s", _size, _rate),
        _line("One durable write: median by method", methods, "size of a write", "time", _size, _time),
        _line(
            f"Durable writes of {binary_text(DEPTH_SIZE_BYTES)}: rate by depth",
            [Series("rate", list(by_depth.items()))],
            "writes at a time",
            "bytes/s",
            _count,
            _rate,
        ),
    ]


def _line(
    title: str, series: Sequence[Series], x_title: str, y_title: str, x_text: Text, y_text: Text
) -> str:
    """A chart of the series that have points; nothing when none has."""
    drawn = [line for line in series if line.points]
    if not drawn:
        return ""
    return line_chart(title, drawn, x_title=x_title, y_title=y_title, x_text=x_text, y_text=y_text)


def _read_plot(measured: Measured) -> str:
    bars = [
        Bar(
            f"{binary_text(p.size_bytes)}, {p.depth} at a time",
            p.bytes_per_s,
            f"{_rate(p.bytes_per_s)}, {_time(p.p50_us)}",
        )
        for p in measured.reads
    ]
    return bar_chart("Direct reads: rate, and median of one", bars) if bars else ""


def _wire_plot(measured: Measured) -> str:
    schemes = sorted({point.scheme for point in measured.wires})
    series = [
        Series(scheme, [(p.frame_bytes, p.bytes_per_s) for p in measured.wires if p.scheme == scheme])
        for scheme in schemes
    ]
    return _line(
        "ZeroMQ between processes: rate by frame", series, "size of a frame", "bytes/s", _size, _rate
    )


def _reach_plot(measured: Measured) -> str:
    found = {
        "through a ring, awake": measured.hop_spinning_us,
        "through a ring, asleep": measured.hop_sleeping_us,
        **{
            f"ZeroMQ over {scheme}, there and back": trip
            for scheme, trip in measured.wire_round_trip_us.items()
        },
        **{f"core {p.first} to {p.second} and back": p.round_trip_us for p in measured.core_pairs},
    }
    bars = [Bar(name, value, _time(value)) for name, value in found.items() if value is not None]
    note = f"; memcpy: {_rate(measured.memcpy_bytes_per_s)}" if measured.memcpy_bytes_per_s else ""
    return bar_chart(f"From process to process: median{note}", bars) if bars else ""


def _findings(system: SystemFacts) -> str:
    findings = diagnose(system)
    rows = [(str(f.level), f.check, f.found, f.wanted, f.cost, f.fix) for f in findings]
    marked = [number for number, finding in enumerate(findings) if finding.level != "ok"]
    return table(("", "check", "found", "wanted", "costs", "fix"), rows, marked=marked)


def _size(nbytes: float) -> str:
    return binary_text(int(nbytes))


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_text(bytes_per_s)}/s"


def _time(us: float) -> str:
    return f"{us:.3g} µs" if us < 1000 else f"{us / 1000:.3g} ms"


def _count(number: float) -> str:
    return f"{number:g}"
