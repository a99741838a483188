"""A directory is that of one partition for all times: a name that is given again does not bring old records back."""

from __future__ import annotations

import pytest

from ringlog.log.jobs import run_now
from ringlog.log.names import OWNER_NAME
from ringlog.log.owner import Owner, claim_dir, read_owner
from ringlog.log.removal import sweep_deleted
from ringlog.log.verify import verify_partition
from tests.support.fake_disk import FakeDisk
from tests.support.logs import PARTITION, LogWorld

FIRST, SECOND = Owner("cluster", 5), Owner("cluster", 6)


def world(owner: Owner, disk: FakeDisk | None = None) -> LogWorld:
    made = LogWorld(disk, open_now=False)
    made.store.open(PARTITION, made.settings, now_ms=made.now_ms, owner=owner)
    return made


def written(owner: Owner = FIRST) -> LogWorld:
    made = world(owner)
    made.append(b"old")
    made.settle()
    made.close()
    return made


def test_the_same_partition_finds_its_records_again():
    assert world(FIRST, written().fake).values() == [b"old"]


def test_a_partition_with_the_name_of_a_deleted_one_begins_empty():
    disk = written().fake
    again = world(SECOND, disk)
    assert again.values() == []
    again.append(b"new")
    again.settle()
    again.close()
    assert sweep_deleted(disk, LogWorld.root) == ["events-0.0-delete"]
    assert world(SECOND, disk).values() == [b"new"]


def test_records_of_another_cluster_are_set_aside_and_kept():
    disk = written(Owner("other", 5)).fake
    assert world(FIRST, disk).values() == []
    assert sweep_deleted(disk, LogWorld.root) == []
    kept = f"{LogWorld.root}/{PARTITION}.0-other-cluster"
    assert any(name.endswith(".log") for name, _ in disk.list_dir(kept))
    disk.rename(f"{LogWorld.root}/{PARTITION}", f"{LogWorld.root}/elsewhere")
    disk.rename(kept, f"{LogWorld.root}/{PARTITION}")
    assert world(Owner("other", 5), disk).values() == [b"old"]


@pytest.mark.parametrize("content", [None, b"", b"RLO1", b"\xff" * 40])
def test_a_directory_without_a_readable_owner_is_taken_over_with_its_records(content: bytes | None):
    disk = written().fake
    path = f"{LogWorld.root}/{PARTITION}/{OWNER_NAME}"
    disk.remove(path)
    if content is not None:
        disk.put(path, content)
    assert world(SECOND, disk).values() == [b"old"]
    assert read_owner(disk.content(path)) == SECOND


def test_the_owner_is_known_before_there_is_anything_to_own():
    disk = FakeDisk(seed=3)
    disk.make_dir(LogWorld.root)
    run_now(disk, claim_dir(disk, f"{LogWorld.root}/{PARTITION}", FIRST))
    assert [name for name, _ in disk.list_dir(f"{LogWorld.root}/{PARTITION}")] == [OWNER_NAME]


def test_a_partition_with_an_owner_has_no_violations():
    made = written()
    assert verify_partition(made.disk, made.path) == []
