"""The example of a pipeline runs to its end, its counts are right, and its check notices when they are not."""

from __future__ import annotations

from examples.page_views import demo, expected, plot, views
from examples.page_views.watch import Sample

PNG = b"\x89PNG\r\n"


def test_the_pipeline_counts_every_view_and_draws_how_it_went(spark, tmp_path):
    assert demo.run(str(tmp_path / "demo"), per_second=500, seconds=2, cores="2") == []
    assert (tmp_path / "demo" / "page-views.png").read_bytes().startswith(PNG)


def test_a_count_that_is_wrong_missing_or_made_up_is_named():
    wanted = {("/a", "12:00"): 3, ("/b", "12:00"): 1}
    assert expected.differences(wanted, wanted, "topic") == []
    found = {("/a", "12:00"): 4, ("/c", "12:00"): 1}
    assert len(expected.differences(wanted, found, "topic")) == 3


def test_views_come_in_a_burst_in_between():
    ticks = list(views.rates(1000, 10))
    assert sum(ticks) == 1000 * (8 + 3 * 2)
    assert max(ticks[40:60]) == min(ticks[40:60]) == 3 * ticks[0]


def test_a_plot_is_drawn_of_a_single_look_too(tmp_path):
    plot.draw([Sample(0.5, 10, {"group": 3})], str(tmp_path / "plot.png"))
    assert (tmp_path / "plot.png").read_bytes().startswith(PNG)
