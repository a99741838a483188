"""Draws lines and bars as SVG text, coloured by the page's style sheet. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from tuning.report.axis import Axis

WIDTH, HEIGHT = 560, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 16, 52, 44
_BAR_PX, _GAP_PX, _LABEL_PX, _VALUE_PX = 18, 8, 210, 120
COLOURS = 8
"""Series have the classes c0 to c7, and begin again."""


class Series(NamedTuple):
    """A line with its points, by x."""

    name: str
    points: Sequence[tuple[float, float]]


class Bar(NamedTuple):
    """One bar; bars of one colour belong together."""

    label: str
    value: float
    text: str
    colour: int = 0


Text = Callable[[float], str]


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_title: str,
    y_title: str,
    x_text: Text,
    y_text: Text,
    y_log: bool = True,
) -> str:
    """Lines over a logarithmic x axis; each x that a series has is a tick."""
    xs = sorted({x for line in series for x, _ in line.points})
    ys = [y for line in series for _, y in line.points]
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    across = _EvenSteps(xs, _LEFT + 8, right - 8)
    up = Axis(ys, bottom, _TOP, log=y_log)
    parts = [_head(title, WIDTH, HEIGHT)]
    for tick in up.ticks():
        y = up.place(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text("tick", _LEFT - 6, y + 4, y_text(tick), anchor="end"))
    parts += [_text("tick", across.place(x), bottom + 16, x_text(x), anchor="middle") for x in xs]
    parts.append(_text("tick", (_LEFT + right) / 2, HEIGHT - 8, x_title, anchor="middle"))
    for number, line in enumerate(series):
        places = [(across.place(x), up.place(y), x, y) for x, y in sorted(line.points)]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in places)
        parts.append(f'<g class="c{number % COLOURS}"><polyline class="line" points="{way}"/>')
        for at_x, at_y, x, y in places:
            told = escape(f"{line.name}: {x_text(x)}, {y_text(y)}")
            parts.append(f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="3"><title>{told}</title></circle>')
        parts.append("</g>")
    parts += [_text("tick", 8, _TOP - 14, y_title), "</svg>"]
    return "\n".join(parts) + legend([line.name for line in series])


def bar_chart(title: str, bars: Sequence[Bar]) -> str:
    """Bars from the left, with their labels before and their values behind them."""
    top = _TOP - 16
    height = top + len(bars) * (_BAR_PX + _GAP_PX) + 8
    longest = max((bar.value for bar in bars), default=1.0) or 1.0
    room = WIDTH - _LABEL_PX - _VALUE_PX
    parts = [_head(title, WIDTH, height)]
    for number, bar in enumerate(bars):
        y = top + number * (_BAR_PX + _GAP_PX)
        width = max(1.0, room * bar.value / longest)
        middle = y + _BAR_PX / 2 + 4
        parts.append(_text("label", _LABEL_PX - 8, middle, bar.label, anchor="end"))
        box = f'<rect x="{_LABEL_PX}" y="{y}" width="{width:.1f}" height="{_BAR_PX}"/>'
        parts.append(f'<g class="c{bar.colour % COLOURS}">{box}</g>')
        parts.append(_text("label", _LABEL_PX + width + 6, middle, bar.text))
    return "\n".join([*parts, "</svg>"])


def legend(names: Sequence[str]) -> str:
    """Which colour is whose."""
    if len(names) < 2:
        return ""
    entries = "".join(
        f'<span class="c{number % COLOURS}"><i></i>{escape(name)}</span>' for number, name in enumerate(names)
    )
    return f'\n<p class="legend">{entries}</p>'


def _head(title: str, width: int, height: int) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg role="img" aria-label="{escape(title)}" {size}>\n' + _text("title", 8, 18, title)


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


class _EvenSteps:
    """Sizes and depths that grow by factors stand at even distances, whatever the factors."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        step = (end - start) / max(1, len(values) - 1)
        self._places = {value: start + number * step for number, value in enumerate(values)}

    def place(self, value: float) -> float:
        return self._places[value]
