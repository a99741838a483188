"""The tables of a comparison inside the README, between two marks. Pure."""

from __future__ import annotations

from perf.compare.summary import Summary
from perf.compare.tables import goals, limits, machine_line, markdown, throughput

BEGIN = "<!-- compare:begin, written by `python -m perf report --readme README.md` -->"
END = "<!-- compare:end -->"


def put_into(text: str, summary: Summary) -> str:
    """A README with the tables of this comparison in place of those of an earlier one."""
    start, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the README has no place for the tables: it needs the lines {BEGIN} and {END}")
    tables = [goals(summary), throughput(summary, "produce"), throughput(summary, "consume"), limits(summary)]
    shown = markdown([table for table in tables if table.rows], heading="####")
    return f"{start}{BEGIN}\n{machine_line(summary)}.\n\n{shown}{END}{after}"
