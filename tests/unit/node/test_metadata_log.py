"""The metadata log: what it said to be flushed is there after any crash, and a failure is final."""

from __future__ import annotations

import random

import pytest

from ringlog.controller.records import Identity, MetadataRecord, ProducerIds, Topic
from ringlog.errors import ControllerUnavailable
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from ringlog.node.metadata_log import MetadataLog
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults
from tests.support.logs import aligned_memory

MEMORY = 64 << 20


def opened(disk: FakeDisk) -> MetadataLog:
    disk.make_dir("/data")
    return MetadataLog(LogStore(disk, "/data", memory=aligned_memory(MEMORY)), now_ms=1000)


def run(log: MetadataLog, passes: int = 10) -> None:
    for _ in range(passes):
        log.poll(now_ms=1000, wait_s=0.0)


def test_records_come_back_with_their_versions_after_a_restart():
    disk = FakeDisk(seed=1)
    log = opened(disk)
    records: list[MetadataRecord] = [Identity("c", 1), Topic(1, "t", {"flush": "os"}), ProducerIds(1000)]
    versions: list[int] = []
    log.append(records[:1], versions.append, now_ms=1000)
    log.append(records[1:], versions.append, now_ms=1000)
    run(log)
    log.close(now_ms=1000)
    assert versions == [1, 3]
    assert list(opened(disk).replay()) == [(1, records[0]), (2, records[1]), (3, records[2])]


def test_what_was_said_to_be_flushed_survives_power_loss():
    disk = FakeDisk(seed=1)
    log = opened(disk)
    versions: list[int] = []
    for number in range(5):
        log.append([ProducerIds(number)], versions.append, now_ms=1000)
        run(log)
    disk.hold_all()
    log.append([ProducerIds(99)], versions.append, now_ms=1000)
    run(log)
    assert versions == [1, 2, 3, 4, 5]
    after = opened(disk.crash(random.Random(1), survival=0.0))
    assert [version for version, _ in after.replay()] == versions


def test_nobody_is_told_before_the_disk_has_it():
    disk = FakeDisk(seed=1)
    log = opened(disk)
    disk.hold_all()
    told: list[int] = []
    log.append([ProducerIds(1)], told.append, now_ms=1000)
    run(log)
    assert told == []
    disk.release_all()
    run(log)
    assert told == [1]


def test_an_answer_without_records_waits_for_those_before_it():
    disk = FakeDisk(seed=1)
    log = opened(disk)
    disk.hold_all()
    told: list[str] = []
    log.append([ProducerIds(1)], lambda _: told.append("records"), now_ms=1000)
    log.when_flushed(lambda: told.append("answer"))
    run(log)
    assert told == []
    disk.release_all()
    run(log)
    assert told == ["records", "answer"]


def test_an_answer_without_records_goes_out_at_once_when_nothing_is_under_way():
    told: list[str] = []
    opened(FakeDisk(seed=1)).when_flushed(lambda: told.append("answer"))
    assert told == ["answer"]


def test_after_a_disk_error_nothing_is_taken_and_nobody_is_told():
    faults = Faults()
    disk = FakeDisk(seed=1, faults=faults)
    log = opened(disk)
    for number in range(100):
        faults.fail("write", nth=disk._kinds["write"] + number)
    told: list[int] = []
    log.append([ProducerIds(1)], told.append, now_ms=1000)
    run(log)
    assert log.failed is not None
    with pytest.raises(ControllerUnavailable):
        log.append([ProducerIds(2)], told.append, now_ms=1000)
    assert told == []


def test_what_a_deleted_topic_left_is_renamed():
    disk = FakeDisk(seed=1)
    log = opened(disk)
    disk.make_dir("/data/t-0")
    log.set_aside(TopicPartition("t", 0))
    log.set_aside(TopicPartition("t", 1))
    assert sorted(disk.list_dirs("/data")) == ["__cluster_metadata-0", "t-0.0-delete"]
