"""The frame of a page: style, headings, tables. Pure; nothing is fetched from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_STYLE = """
:root { --ink: #1c2430; --paper: #ffffff; --faint: #667085; --rule: #e4e7ec; --mark: #fff6dd;
  --c0: #2563eb; --c1: #d97706; --c2: #059669; --c3: #dc2626; --c4: #7c3aed;
  --c5: #0891b2; --c6: #be185d; --c7: #65a30d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --paper: #14181f; --faint: #98a2b3; --rule: #2a313c;
  --mark: #3a3320; --c0: #60a5fa; --c1: #fbbf24; --c2: #34d399; --c3: #f87171; --c4: #a78bfa;
  --c5: #22d3ee; --c6: #f472b6; --c7: #a3e635; } }
body { margin: 2rem auto; max-width: 74rem; padding: 0 1.2rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p.sub { color: var(--faint); margin: 0; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: .3rem .8rem .3rem 0; vertical-align: top;
  border-bottom: 1px solid var(--rule); } th { color: var(--faint); font-weight: 500; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.mark td { background: var(--mark); } code { font: 13px ui-monospace, monospace; }
.plots { display: flex; flex-wrap: wrap; gap: 1.2rem 2rem; } .plots > div { max-width: min(100%, 560px); }
svg { max-width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .title { font-weight: 600; font-size: 13px; } svg .tick { fill: var(--faint); font-size: 11px; }
svg .grid { stroke: var(--rule); } svg .line { fill: none; stroke-width: 2; }
.legend { margin: 0 0 0 66px; font-size: 12px; } .legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 5px; margin-right: .35rem; }
""" + "".join(
    f".c{n} .line {{ stroke: var(--c{n}); }} .c{n} circle, .c{n} rect {{ fill: var(--c{n}); }} "
    f".c{n} > i {{ background: var(--c{n}); }}\n"
    for n in range(8)
)

_NUMBER, _MARK = ' class="number"', ' class="mark"'


def page(title: str, subtitle: str, parts: Sequence[str]) -> str:
    """A whole page."""
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="sub">{escape(subtitle)}</p>\n{body}\n</body>\n</html>\n'
    )


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def plots(drawn: Sequence[str]) -> str:
    """Plots beside each other, as many as fit."""
    return '<div class="plots">\n' + "\n".join(f"<div>{plot}</div>" for plot in drawn if plot) + "\n</div>"


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    marked: Sequence[int] = (),
) -> str:
    """Rows under headings; columns of numbers stand to the right, and some rows are marked."""

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{_NUMBER if at in numbers else ''}>{escape(cell)}</{tag}>" for at, cell in enumerate(row)
        )

    lines = [
        f"<tr{_MARK if number in marked else ''}>{cells(row, 'td')}</tr>" for number, row in enumerate(rows)
    ]
    return f"<table>\n<tr>{cells(headings, 'th')}</tr>\n" + "\n".join(lines) + "\n</table>"


def paragraphs(texts: Sequence[str]) -> str:
    return "\n".join(f"<p>{escape(text)}</p>" for text in texts)
