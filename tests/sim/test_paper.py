"""The large cluster, small: it recovers from the loss of a rack and from a rolling restart."""

from __future__ import annotations

from tests.sim.paper import RACKS, paper, place
from tests.support.amounts import amount


def test_a_lost_rack_and_a_rolling_restart_lose_nothing():
    report = paper(1, brokers=amount(5, 50), partitions=amount(20, 10_000), producers=amount(4, 300))
    assert report.led_by_rack > 0 and 0 < report.leaders_ms < 2_000
    assert 0 < report.back_in_sync_ms < 30_000 and report.rack_moved_bytes > 0
    assert report.acked > 0
    assert "none was lost" in str(report)


def test_replicas_of_a_partition_stand_in_different_racks():
    for view in place(10_000, 50):
        assert len({node % RACKS for node in view.replicas}) == 3
