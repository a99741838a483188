"""A comparison as one HTML page that needs nothing beside it: tables, and plots inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape

from perf.compare.summary import Summary
from perf.compare.tables import Table, machine_line, tables_of
from perf.peers import settings
from perf.peers.settings import Setting

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; color: #1c2128; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
th, td { border: 1px solid #d0d7de; padding: .25rem .6rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
th { background: #f2f4f7; }
td.reached { color: #116329; } td.missed { color: #a40e26; font-weight: 600; }
img { max-width: 100%; } p.machine { color: #57606a; }
details { margin: 1rem 0; }
"""
HOW = (
    "One run on one machine: systems in turns, each in a fresh directory, one broker at a time. D0 is no "
    "acknowledgement, D1 one after the write, D2 one after the flush to the device. Every record that was produced "
    "was read again and checked by count and checksum. Figures are medians over the rounds, ± the spread of their "
    "middle half; ratios pair figures of one round. Latency is counted from the moment a record was due, at a rate "
    "that does not wait; a load is a share of the system's own saturation, same-rate one rate for all."
)


def page(summary: Summary, plots: Mapping[str, bytes]) -> str:
    """The whole page; plots are PNG images by title."""
    body = [
        f"<h1>ringlog beside its peers</h1><p class=machine>{escape(machine_line(summary))}</p><p>{HOW}</p>"
    ]
    body += [_plot(title, image) for title, image in plots.items()]
    body += [_table(table) for table in tables_of(summary)]
    body.append(_settings())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>ringlog beside its peers</title>'
        f"<style>{STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _plot(title: str, image: bytes) -> str:
    data = base64.b64encode(image).decode()
    return f'<h2>{escape(title)}</h2><img alt="{escape(title)}" src="data:image/png;base64,{data}">'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.headings)
    rows = ("".join(_cell(cell) for cell in row) for row in table.rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f"<h2>{escape(table.title)}</h2><table><tr>{head}</tr>\n{body}</table>"


def _cell(text: str) -> str:
    kind = f" class={text}" if text in ("reached", "missed") else ""
    return f"<td{kind}>{escape(text)}</td>"


def _settings() -> str:
    """Every peer's settings with their reasons, folded."""
    parts = []
    for name, found in vars(settings).items():
        rows = list(found.values()) if isinstance(found, dict) else found
        if isinstance(rows, list | tuple) and rows and all(isinstance(row, Setting) for row in rows):
            table = Table(
                name.replace("_", " ").title(), ["setting", "value", "why"], [list(row) for row in rows]
            )
            parts.append(_table(table))
    return f"<details><summary>Every peer's settings, with their reasons</summary>{''.join(parts)}</details>"
