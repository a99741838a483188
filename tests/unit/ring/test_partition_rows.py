"""Partitions on the stats page: whose rows they are, what readers see at once, and how old a record is known to be."""

from __future__ import annotations

import random

import pytest

from ringlog.coordination.lag import behind
from ringlog.limits import PARTITIONS_MAX
from ringlog.ring.partition_rows import MARKS
from ringlog.ring.stats import Stats, StatsPage


@pytest.fixture
def page() -> StatsPage:
    return StatsPage(memoryview(bytearray(StatsPage.bytes_needed(2))), 2)


def row_of(page: StatsPage, partition: int):
    (row,) = [row for row in page.served() if row["partition"] == partition]
    return row


def test_partitions_are_counted_while_they_are_hosted(page):
    stats = Stats(page, 0)
    stats.partitions.host(5, 3, now_ms=1)
    stats.moved(5, bytes_in=10, records_in=2)
    stats.moved(5, bytes_out=4)
    stats.show()
    row = row_of(page, 5)
    assert [int(row[name]) for name in ("shard", "bytes_in", "records_in", "bytes_out")] == [3, 10, 2, 4]
    stats.partitions.leave(5)
    stats.moved(5, bytes_in=10)
    stats.show()
    assert len(page.served()) == 0 and page.areas[0].ends(5) is None


def test_ids_that_differ_by_the_size_of_the_table_do_not_meet(page):
    first, second = Stats(page, 0), Stats(page, 1)
    ids = [5, 5 + PARTITIONS_MAX, 5 + 2 * PARTITIONS_MAX]
    for number, partition in enumerate(ids):
        (first, second)[number % 2].partitions.host(partition, number % 2, 0, 100 + number, now_ms=1)
    assert sorted(page.served()["partition"]) == ids
    assert [page.areas[n % 2].ends(partition).readable_offset for n, partition in enumerate(ids)] == [
        100, 101, 102,
    ]  # fmt: skip


def test_a_row_is_given_again_and_no_table_grows(page):
    rows = Stats(page, 0).partitions
    for partition in range(1, 1000):
        rows.host(partition, 0, now_ms=1)
        rows.leave(partition)
    assert int(page.areas[0].head[0]) == 1


def test_without_memory_a_partition_is_served_and_not_shown():
    def nothing_left(position: int, nbytes: int) -> None:
        if position >= page_head:
            raise OSError("no space")

    page_head = StatsPage.head_bytes(1) + 64
    page = StatsPage(memoryview(bytearray(StatsPage.bytes_needed(1))), 1, reserve=nothing_left)
    stats = Stats(page, 0)
    stats.partitions.host(5, 0, now_ms=1)
    stats.moved(5, bytes_in=1)
    stats.partitions.grown(5, 10)
    stats.partitions.look(2)
    stats.show()
    assert len(page.served()) == 0


def test_where_a_log_ends_is_seen_at_once(page):
    rows = Stats(page, 0).partitions
    rows.host(5, 0, 3, 40, now_ms=1)
    rows.grown(5, 41)
    rows.started(5, 7)
    ends = page.areas[0].ends(5)
    assert (ends.log_start_offset, ends.readable_offset) == (7, 41)


def test_the_age_of_a_record_is_never_too_small_and_known_to_a_share_of_it(page):
    """A log that grows for days, in bursts: what a group is told of its lag, beside what is true."""
    chance = random.Random(7)
    rows = Stats(page, 0).partitions
    now_ms, end = 1_000_000, 0
    appended_ms: list[int] = []
    rows.host(5, 0, now_ms=now_ms)
    for look in range(20_000):
        now_ms += 250
        if look % 2000 == 1999:
            now_ms += 3_600_000  # nobody wrote for an hour, and the shard looked all the time
            rows.look(now_ms - 250)
        if chance.random() < 0.4:
            new = chance.randrange(1, 20)
            end += new
            appended_ms += [now_ms - chance.randrange(250)] * new
            rows.grown(5, end)
        rows.look(now_ms)
        if look % 97 == 0 and end:
            ends = page.areas[0].ends(5)
            for committed in {0, end // 2, max(end - 50, 0), end - 1}:
                told, true_ms = behind(committed, ends, now_ms), now_ms - appended_ms[committed]
                assert told.records == end - committed
                assert true_ms <= told.ms <= true_ms * 2 + 500, (look, committed, told.ms, true_ms)
    assert len(page.areas[0].ends(5).marks) == MARKS


def test_nothing_is_behind_at_the_end_or_beyond_it(page):
    rows = Stats(page, 0).partitions
    rows.host(5, 0, 0, 10, now_ms=1)
    ends = page.areas[0].ends(5)
    assert behind(10, ends, 99) == behind(15, ends, 99) == (0, 0)
