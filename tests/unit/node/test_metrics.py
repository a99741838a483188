"""Metrics and status: text that Prometheus reads, and what is wrong, made from pages that anyone may look at."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

import pytest

from ringlog.errors import NodeUnavailable
from ringlog.model import TopicPartition
from ringlog.node.control import status
from ringlog.node.identity import DataDirLock, NodeInfo, ProcessInfo
from ringlog.node.metrics import _HELP, prometheus_text
from ringlog.ring.board import Board, ProcessState, Topology
from ringlog.ring.shm import SharedMemory
from ringlog.ring.stats import COUNTERS, HISTOGRAMS, Stats, StatsPage

TOPOLOGY = Topology(nets=1, shards=1)
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="[^"]*",?)+)\} (-?[0-9.]+(?:e[+-]?[0-9]+)?)')


class Pages:
    """A node that is nothing but its pages."""

    def __init__(self, data_dir: str) -> None:
        self.data_dir = data_dir
        self._board = SharedMemory.create("unit-board", Board.bytes_needed(TOPOLOGY))
        self._stats = SharedMemory.create("unit-stats", StatsPage.bytes_needed(3))
        self.board = Board(memoryview(self._board.memory), TOPOLOGY)
        page = StatsPage(memoryview(self._stats.memory), 3)
        self.page = page
        self.rows = [Stats(page, process) for process in range(3)]
        self._lock = DataDirLock(data_dir)
        self._lock.take()
        processes = [ProcessInfo(*TOPOLOGY.role(process), os.getpid(), "ready", 0) for process in range(3)]
        info = NodeInfo(1, ["tcp://x"], 1, 1, 0, self._board.name, self._stats.name, None, processes)
        self._lock.write_info(info)

    def leave(self) -> None:
        self._lock.leave()
        self._board.unlink()
        self._stats.unlink()


@pytest.fixture
def pages(tmp_path) -> Iterator[Pages]:
    pages = Pages(str(tmp_path))
    yield pages
    pages.leave()


def samples(text: str) -> dict[tuple[str, str], float]:
    """All samples of a text; fails unless every line is one that Prometheus reads, after its HELP and TYPE."""
    found: dict[tuple[str, str], float] = {}
    kinds: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, "a metric is introduced once"
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert kinds.get(name) in ("counter", "gauge") or kinds.get(base) == "histogram", line
            assert (name, labels) not in found, line
            found[name, labels] = float(value)
    return found


def test_every_line_is_one_that_prometheus_reads(pages):
    for process, stats in enumerate(pages.rows):
        stats.observe("produce_us", 150)
        stats.partitions.host(process + 7, 0, now_ms=1)
        stats.moved(process + 7, bytes_in=5)
        stats.show()
    assert samples(prometheus_text(pages.data_dir))


def test_counters_of_each_process_are_told(pages):
    pages.rows[2].counts["requests"] = 11
    pages.rows[2].counts["partitions"] = 3
    pages.rows[2].show()
    found = samples(prometheus_text(pages.data_dir))
    assert found["ringlog_requests_total", 'role="shard",index="0"'] == 11
    assert found["ringlog_partitions", 'role="shard",index="0"'] == 3


def test_a_process_is_up_when_it_is_ready(pages):
    pages.board.set_state(1, ProcessState.READY)
    found = samples(prometheus_text(pages.data_dir))
    up = {labels: value for (name, labels), value in found.items() if name == "ringlog_up"}
    assert up == {'role="controller",index="0"': 0, 'role="net",index="0"': 1, 'role="shard",index="0"': 0}


def test_buckets_grow_up_to_the_count(pages):
    for value in (3, 150, 150, 90_000):
        pages.rows[1].observe("produce_us", value)
    pages.rows[1].show()
    found = samples(prometheus_text(pages.data_dir))
    buckets = [value for (name, _), value in found.items() if name == "ringlog_produce_seconds_bucket"]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found["ringlog_produce_seconds_count", 'role="net",index="0"'] == 4


def test_partitions_that_are_served_are_told(pages):
    pages.rows[2].partitions.host(7, 0, now_ms=1)
    pages.rows[2].moved(7, bytes_in=5, records_in=2)
    pages.rows[2].show()
    found = samples(prometheus_text(pages.data_dir))
    assert found["ringlog_partition_bytes_in_total", 'topic="",partition="#7",shard="0"'] == 5
    found = samples(prometheus_text(pages.data_dir, {7: TopicPartition("orders", 3)}))
    assert found["ringlog_partition_bytes_in_total", 'topic="orders",partition="3",shard="0"'] == 5


def test_every_counter_says_what_it_counts():
    assert set(_HELP) == {*COUNTERS, *HISTOGRAMS}


def wrong_with(process: str, pages: Pages) -> list[str]:
    """What `ringlog status` says of a process. Of the disk it may say something, too."""
    return [what for what in status(pages.data_dir, sample_s=0).wrong if process in what]


def test_a_process_that_stands_still_is_told(pages):
    for process, stats in enumerate(pages.rows):
        pages.board.set_state(process, ProcessState.READY)
        stats.show()
    assert wrong_with("net-0", pages) == []
    pages.page.rows["shown_ms"][1] = time.monotonic_ns() // 1_000_000 - 12_000
    (wrong,) = wrong_with("net-0", pages)
    assert wrong.startswith(f"net-0 (pid {os.getpid()}) has stood still for 12 s")
    silent = {
        labels: value
        for (name, labels), value in samples(prometheus_text(pages.data_dir)).items()
        if name == "ringlog_silent_ms"
    }
    assert silent['role="net",index="0"'] >= 12_000 > silent['role="shard",index="0"']


def test_a_network_process_that_takes_no_more_connections_is_told(pages):
    for process in range(3):
        pages.board.set_state(process, ProcessState.READY)
    counts = pages.rows[1].counts
    counts["connections"], counts["connections_max"] = 99, 100
    pages.rows[1].show()
    assert wrong_with("net-0", pages) == []
    counts["connections"] = 100
    pages.rows[1].show()
    (wrong,) = wrong_with("net-0", pages)
    assert wrong.startswith("net-0 has 100 connections and takes no more") and "connections_max" in wrong


def test_where_no_node_runs_that_is_said(tmp_path):
    with pytest.raises(NodeUnavailable, match="ringlog start"):
        prometheus_text(str(tmp_path))
