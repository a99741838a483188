"""Reports: the page of tune is what it was, needs nothing but itself, and escapes what others named."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from tests.support.facts import facts
from tuning.advice.advise import advise
from tuning.advice.setting import Policy
from tuning.compare import LOADS, Compared
from tuning.probe.measured import Measured
from tuning.report.axis import Axis
from tuning.report.svg import Bar, Series, bar_chart, line_chart
from tuning.report.tune_page import tune_page

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "tune-report.html"
COMPARED = [Compared(load, 100.0, 120.0, [90.0, 100.0, 110.0], [119.0, 120.0, 121.0]) for load in LOADS]


class Outline(HTMLParser):
    """Checks that elements end in the order in which they began, and gathers what a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href") and value]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    assert found.open == []
    return found


def test_the_page_is_the_golden_one():
    """RINGLOG_GOLDEN=1 writes it anew; look at it before you commit it."""
    page = tune_page(facts(), advise(facts(), Policy.LATENCY), COMPARED)
    if os.environ.get("RINGLOG_GOLDEN"):
        GOLDEN.write_text(page, encoding="utf-8")
    assert page == GOLDEN.read_text(encoding="utf-8")


def test_the_page_is_whole_and_fetches_nothing():
    found = outline(tune_page(facts(), advise(facts()), COMPARED))
    assert found.fetched == [] and "script" not in found.seen
    assert found.seen.count("svg") == 6 + len(COMPARED)


def test_a_page_of_a_probe_without_time_is_a_page():
    nothing = Measured(engine="plain", budget_s=1.0, took_s=1.0)
    bare = msgspec.structs.replace(facts(), measured=nothing)
    assert "svg" not in outline(tune_page(bare, advise(bare))).seen


def test_what_a_machine_calls_itself_is_text_and_never_markup():
    named = facts(cpu_model="<script>alert(1)</script>", storage={"model": "a & b"})
    page = tune_page(named, advise(named))
    assert "<script>" not in page and "&lt;script&gt;" in page and "a &amp; b" in page


def test_every_setting_and_its_reason_is_on_the_page():
    advice = advise(facts())
    page = tune_page(facts(), advice)
    assert all(f"<td>{setting.name}</td>" in page for setting in advice.settings)


def test_a_chart_shows_each_point_with_its_value():
    drawn = line_chart(
        "rates", [Series("a", [(1, 10.0), (4, 1000.0)]), Series("b", [(1, 20.0)])],
        x_title="x", y_title="y", x_text=lambda x: f"{x}x", y_text=lambda y: f"{y:g}y",
    )  # fmt: skip
    assert drawn.count("<circle") == 3 and "<title>a: 4x, 1000y</title>" in drawn
    assert 'class="legend"' in drawn
    bars = bar_chart("bars", [Bar("one", 1.0, "1 s"), Bar("two", 2.0, "2 s", 1), Bar("none", 0.0, "0 s")])
    assert bars.count("<rect") == 3 and "2 s" in bars


@pytest.mark.parametrize("values", [[], [5.0], [0.0], [3.0, 3.0], [1e-9, 1e12]])
@pytest.mark.parametrize("log", [True, False])
def test_an_axis_takes_any_values(values, log):
    axis = Axis(values, 0.0, 100.0, log=log)
    ticks = axis.ticks()
    assert len(ticks) >= 2 and ticks == sorted(ticks)
    assert all(-1e-6 <= axis.place(value) <= 100 + 1e-6 for value in [*values, *ticks])


def test_the_gain_is_above_one_when_it_got_better_whatever_the_unit():
    more, less = Compared(LOADS[0], 100, 200, [], []), Compared(LOADS[2], 4.0, 2.0, [], [])
    assert more.gain == less.gain == 2.0
