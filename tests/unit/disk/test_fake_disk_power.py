"""What a power loss leaves on the fake disk: of contents, and of names."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ringlog.limits import BLOCK_BYTES, SECTOR_BYTES
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_probes import SEEDS, made, sectors, survivors, values_per_sector, view, write


def test_an_unflushed_write_is_torn_at_sectors_each_old_or_new():
    disk, file = made(sectors(1, 1, 1, 1))
    write(disk, file, sectors(2, 2, 2), position=SECTOR_BYTES)
    contents = survivors(disk)
    assert values_per_sector(contents) == [{1}, {1, 2}, {1, 2}, {1, 2}]
    assert len(contents) == 8


def test_survival_says_how_much_of_what_was_not_flushed_is_left():
    disk, file = made(sectors(1, 1))
    write(disk, file, sectors(2, 2))
    assert survivors(disk, survival=0.0) == {sectors(1, 1)}
    assert survivors(disk, survival=1.0) == {sectors(2, 2)}


def test_a_sector_written_twice_holds_any_of_its_versions():
    disk, file = made(sectors(1))
    write(disk, file, sectors(2))
    write(disk, file, sectors(3))
    assert survivors(disk) == {sectors(1), sectors(2), sectors(3)}


def test_a_durable_write_survives_with_its_size_and_nothing_else_does():
    disk, file = made(sectors(1, 1))
    write(disk, file, sectors(2), position=0)
    write(disk, file, sectors(3, 3), position=2 * SECTOR_BYTES, durable=True)
    assert values_per_sector(survivors(disk)) == [{1, 2}, {1}, {3}, {3}]


def test_a_durable_write_ends_the_older_versions_of_its_sectors():
    disk, file = made(sectors(1, 1, 1))
    write(disk, file, sectors(2, 2, 2))
    write(disk, file, sectors(3), position=SECTOR_BYTES, durable=True)
    assert values_per_sector(survivors(disk)) == [{1, 2}, {3}, {1, 2}]


def test_a_durable_write_of_part_of_a_sector_takes_the_whole_sector_along():
    disk, file = made(sectors(1))
    write(disk, file, b"\2" * 100)
    write(disk, file, b"\3" * 100, position=200, durable=True)
    assert survivors(disk) == {b"\2" * 100 + b"\1" * 100 + b"\3" * 100 + b"\1" * 212}


def test_a_flush_makes_everything_durable_that_completed_before_it():
    disk, file = made(sectors(1))
    write(disk, file, sectors(2, 2))
    disk.truncate(file, SECTOR_BYTES + 7)
    assert disk.wait(disk.flush(file)) == 0
    assert survivors(disk) == {(sectors(2, 2))[: SECTOR_BYTES + 7]}


def test_a_flush_does_not_cover_a_write_that_completed_after_its_submission():
    disk, file = made(sectors(1))
    late = disk.write(file, [view(sectors(2))], 0, durable=False)
    flush = disk.flush(file)
    disk.submit()
    disk.wait(late)
    assert disk.wait(flush) == 0
    assert survivors(disk) == {sectors(1), sectors(2)}


def test_a_write_in_flight_may_have_landed_in_part_durable_or_not():
    for durable in (False, True):
        disk, file = made(sectors(1, 1))
        disk.write(file, [view(sectors(2, 2))], 0, durable=durable)
        disk.submit()
        assert len(survivors(disk)) == 4


def test_a_write_that_was_not_submitted_has_not_happened():
    disk, file = made(sectors(1))
    disk.write(file, [view(sectors(2))], 0, durable=True)
    assert survivors(disk) == {sectors(1)}


def test_an_unflushed_size_is_old_or_new_and_new_space_is_zero_or_written():
    disk, file = made(sectors(1))
    write(disk, file, sectors(2), position=SECTOR_BYTES)
    assert survivors(disk) == {sectors(1), sectors(1, 0), sectors(1, 2)}


def test_a_preallocation_is_durable_after_a_flush():
    disk, file = made()
    disk.preallocate(file, 0, BLOCK_BYTES)
    disk.submit()
    assert survivors(disk) == {b"", bytes(BLOCK_BYTES)}
    disk.completions()
    assert survivors(disk) == {b"", bytes(BLOCK_BYTES)}
    disk.wait(disk.flush(file))
    assert survivors(disk) == {bytes(BLOCK_BYTES)}


def test_an_unflushed_truncation_happened_as_a_whole_or_not_at_all():
    disk, file = made(sectors(1, 2, 3))
    disk.truncate(file, SECTOR_BYTES)
    assert survivors(disk) == {sectors(1, 2, 3), sectors(1)}


def test_what_was_truncated_never_shows_behind_what_was_written_later():
    disk, file = made(sectors(1, 1, 1))
    disk.truncate(file, 0)
    write(disk, file, sectors(2), position=2 * SECTOR_BYTES)
    assert survivors(disk) == {sectors(1, 1, 1), b"", sectors(0, 0, 0), sectors(0, 0, 2)}


def test_unflushed_writes_before_a_truncation_do_not_outlive_it():
    disk, file = made(sectors(1, 1))
    write(disk, file, sectors(2, 2))
    disk.truncate(file, SECTOR_BYTES)
    write(disk, file, sectors(3), position=2 * SECTOR_BYTES, durable=True)
    assert survivors(disk) == {sectors(1, 0, 3), sectors(2, 0, 3)}


def test_a_crash_changes_nothing_on_the_disk_that_crashed():
    disk, file = made(sectors(1, 1))
    write(disk, file, sectors(2, 2))
    before = survivors(disk)
    assert disk.content("/data/log") == sectors(2, 2)
    assert survivors(disk) == before


def test_what_survived_one_crash_is_durable_in_the_next():
    disk, file = made(sectors(1, 1, 1, 1))
    write(disk, file, sectors(2, 2, 2, 2))
    after = disk.crash(random.Random(3), survival=0.5)
    assert survivors(after) == {after.content("/data/log")}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "durable", "flush"]), st.integers(0, 12), st.integers(1, 4))
    ),
    st.integers(0, 1000),
)
def test_every_surviving_sector_is_the_flushed_version_or_a_later_one(steps, seed):
    """Against a model that keeps, for each sector, the versions that may be found in it, the newest last."""
    disk, file = made(sectors(*[0] * 16), seed=seed)
    versions = [[0] for _ in range(16)]
    for version, (step, first, count) in enumerate(steps, start=1):
        if step == "flush":
            disk.wait(disk.flush(file))
            versions = [sector[-1:] for sector in versions]
            continue
        write(disk, file, sectors(*[version] * count), SECTOR_BYTES * first, durable=step == "durable")
        for sector in versions[first : first + count]:
            if step == "durable":
                sector.clear()
            sector.append(version)
    assert values_per_sector([disk.content("/data/log")]) == [{sector[-1]} for sector in versions]
    for found, allowed in zip(values_per_sector(survivors(disk)), versions, strict=True):
        assert found <= set(allowed)


def test_a_new_name_may_be_lost_until_its_directory_was_flushed():
    disk = FakeDisk()
    disk.make_dir("/data")
    file = disk.open("/data/log", write=True, create=True)
    write(disk, file, sectors(1), durable=True)
    assert survivors(disk) == {None, sectors(1)}
    disk.make_dir("/other")
    disk.wait(disk.flush_dir("/other"))
    assert survivors(disk) == {None, sectors(1)}
    disk.wait(disk.flush_dir("/data"))
    assert survivors(disk) == {sectors(1)}


def test_a_flush_of_a_directory_does_not_cover_names_made_after_its_submission():
    disk = FakeDisk()
    disk.make_dir("/data")
    flush = disk.flush_dir("/data")
    disk.submit()
    disk.open("/data/log", write=True, create=True)
    disk.wait(flush)
    assert survivors(disk) == {None, b""}


def test_a_removed_name_may_come_back_until_its_directory_was_flushed():
    disk, _ = made(sectors(1))
    disk.remove("/data/log")
    assert not disk.exists("/data/log")
    assert survivors(disk) == {None, sectors(1)}
    disk.wait(disk.flush_dir("/data"))
    assert survivors(disk) == {None}


def test_a_rename_happened_as_a_whole_or_not_at_all():
    disk, _ = made(sectors(1))
    disk.put("/data/new", sectors(2))
    disk.rename("/data/new", "/data/log")
    outcomes = set()
    for seed in SEEDS:
        after = disk.crash(random.Random(seed))
        outcomes.add((after.content("/data/log"), after.exists("/data/new")))
    assert outcomes == {(sectors(1), True), (sectors(2), False)}


def test_name_changes_survive_as_a_prefix_of_their_order():
    disk = FakeDisk()
    disk.make_dir("/data")
    for name in "abcd":
        disk.open(f"/data/{name}", write=True, create=True)
    found = {"".join(name for name, _ in disk.crash(random.Random(seed)).list_dir("/data")) for seed in SEEDS}
    assert found == {"", "a", "ab", "abc", "abcd"}


def test_a_rename_across_directories_is_durable_when_both_were_flushed():
    disk, _ = made(sectors(1))
    disk.make_dir("/other")
    disk.rename("/data/log", "/other/log")
    disk.wait(disk.flush_dir("/other"))
    assert survivors(disk, "/other/log") == {None, sectors(1)}
    disk.wait(disk.flush_dir("/data"))
    assert survivors(disk, "/other/log") == {sectors(1)}


def test_operations_on_one_name_keep_their_order_whatever_was_flushed():
    disk, _ = made(sectors(1))
    disk.make_dir("/other")
    disk.rename("/data/log", "/other/log")
    disk.remove("/other/log")
    disk.wait(disk.flush_dir("/other"))
    assert survivors(disk, "/other/log") == {None}
    assert survivors(disk, "/data/log") == {None}
