"""What a node tells of its load: rates of what it leads, from counts that may begin anew."""

from __future__ import annotations

import numpy as np

from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Partition, Topic
from ringlog.limits import LOAD_PARTITIONS_MAX, LOAD_REPORT_MS
from ringlog.node.load_meter import LoadMeter
from ringlog.ring.partition_rows import ROW


def rows(**counts: tuple[int, int]) -> np.ndarray:
    """p1=(in, out)"""
    made = np.zeros(len(counts), ROW)
    for at, (name, (bytes_in, bytes_out)) in enumerate(counts.items()):
        made[at]["partition"], made[at]["bytes_in"], made[at]["bytes_out"] = (
            int(name[1:]),
            bytes_in,
            bytes_out,
        )
    return made


def image_of(leaders: dict[int, int]) -> MetadataImage:
    image = MetadataImage()
    image.replay(Topic(1, "t", {}))
    for number, leader in leaders.items():
        image.replay(Partition(number, 1, number - 1, 0, replicas=(1, 2), shards=(0, 0), leader=leader))
    return image


def meter_of(*pages: np.ndarray) -> LoadMeter:
    return LoadMeter(iter(pages).__next__)


def test_bytes_in_and_out_of_what_the_node_leads_are_told_as_rates_the_busiest_first():
    meter = meter_of(
        rows(p1=(0, 0), p2=(0, 0), p3=(0, 0)), rows(p1=(1_000, 0), p2=(2_000, 3_000), p3=(9_000, 0))
    )
    image = image_of({1: 1, 2: 1, 3: 2})
    assert meter.report(image, 1, 0.0) == []
    assert meter.report(image, 1, LOAD_REPORT_MS - 1) == [], "it is not due yet"
    assert meter.report(image, 1, 2 * LOAD_REPORT_MS) == [(2, 2_500), (1, 500)]


def test_counts_that_begin_anew_and_partitions_that_come_or_go_are_no_load():
    meter = meter_of(
        rows(p1=(5_000, 0), p2=(1, 0)), rows(p1=(10, 0), p3=(7_000, 0)), rows(p1=(1_010, 0), p3=(7_000, 0))
    )
    image = image_of({1: 1, 2: 1, 3: 1})
    meter.report(image, 1, 0.0)
    assert meter.report(image, 1, 1_000.0) == []
    assert meter.report(image, 1, 2_000.0) == [(1, 1_000)]
    assert meter_of(rows(p9=(0, 0)), rows(p9=(5, 0))).report(image, 1, 0.0) == []


def test_a_report_is_bounded():
    count = LOAD_PARTITIONS_MAX + 5
    before = rows(**{f"p{number}": (0, 0) for number in range(1, count + 1)})
    after = rows(**{f"p{number}": (number * 1_000, 0) for number in range(1, count + 1)})
    meter, image = meter_of(before, after), image_of(dict.fromkeys(range(1, count + 1), 1))
    meter.report(image, 1, 0.0)
    told = meter.report(image, 1, 1_000.0)
    assert len(told) == LOAD_PARTITIONS_MAX and told[0][0] == count
