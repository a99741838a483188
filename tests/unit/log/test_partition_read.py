"""Promises of reads: whole batches, budgets, hot and cold alike, times, ranges."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlog.errors import InvalidRequest, OffsetOutOfRange, PartitionBusy
from ringlog.limits import MIB
from ringlog.log.jobs import run_now
from ringlog.log.reading import TimedOffset
from ringlog.log.settings import LogSettings
from ringlog.records.scan import check
from tests.support.logs import LogWorld, batch_of


@pytest.fixture(params=["hot", "cold"])
def world(request):
    """A log of several segments, in memory or on disk only."""
    made = LogWorld()
    for number in range(200):
        made.append(*[b"%04d" % number + bytes(4_000)] * 3, timestamp=10 * number)
        made.settle()
    if request.param == "cold":
        made.evict_all()
    return made


def read(world, offset, bytes_max):
    with world.store.read_now(world.partition, offset, bytes_max) as slices:
        return check(slices.tobytes()) if slices.nbytes else []


def test_a_read_begins_with_the_batch_that_holds_the_offset(world):
    for offset in (0, 1, 2, 3, 299, 300, 301, 599):
        table = read(world, offset, 1)
        assert table["base_offset"][0] == offset - offset % 3


def test_a_read_returns_at_least_one_batch_and_otherwise_keeps_to_its_budget(world):
    batch = int(read(world, 0, 1)["length"][0])
    assert len(read(world, 0, 1)) == 1
    assert len(read(world, 0, batch)) == 1
    assert len(read(world, 0, 2 * batch - 1)) == 1
    assert len(read(world, 0, 2 * batch)) == 2
    assert 4 <= len(read(world, 30, 5 * batch + 10)) <= 5  # from disk it may be one less


@pytest.mark.parametrize("where", ["hot", "cold"])
def test_a_batch_larger_than_the_budget_is_read_alone(where):
    world = LogWorld()
    world.append(bytes(40_000))
    world.settle()
    for _ in range(20):  # all in one write
        world.append(bytes(5_000))
    world.settle()
    if where == "cold":
        world.evict_all()
    assert len(read(world, 0, 10_000)) == 1


def test_reading_on_from_next_offset_gives_every_record_once(world):
    assert [record.offset for record in world.records(bytes_max=20_000)] == list(range(600))
    assert [record.offset for record in world.records(bytes_max=1)] == list(range(600))
    assert [record.offset for record in world.records(bytes_max=10 * MIB)] == list(range(600))


def test_a_read_at_the_end_is_empty_and_beyond_it_is_an_error(world):
    with world.store.read_now(world.partition, 600, 1000) as slices:
        assert (slices.nbytes, slices.next_offset) == (0, 600)
    with pytest.raises(OffsetOutOfRange, match=r"601 is outside of \[0, 600\]"):
        world.store.read_now(world.partition, 601, 1000)
    with pytest.raises(OffsetOutOfRange):
        world.store.read_now(world.partition, -1, 1000)


def test_a_read_of_nothing_is_an_invalid_request(world):
    with pytest.raises(InvalidRequest):
        world.store.read_now(world.partition, 0, 0)


def test_the_first_record_at_or_after_a_time_is_found(world):
    find = world.store.find_time_now
    assert find(world.partition, 0) == TimedOffset(0, 0)
    assert find(world.partition, 1) == TimedOffset(3, 10)
    assert find(world.partition, 990) == TimedOffset(297, 990)
    assert find(world.partition, 1_985) == TimedOffset(597, 1_990)
    assert find(world.partition, 1_991) is None


def test_times_are_found_when_they_are_out_of_order():
    world = LogWorld()
    stamps = [50, 10, 90, 20, 80, 100, 5]
    for stamp in stamps:
        world.append(b"x" * 9_000, timestamp=stamp)
        world.settle()
    for wanted in range(102):
        first = next(((o, s) for o, s in enumerate(stamps) if s >= wanted), None)
        assert world.store.find_time_now(world.partition, wanted) == first


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 500)), min_size=1, max_size=40),
    st.integers(0, 500),
)
def test_time_search_equals_a_search_through_all_records(shape, wanted):
    world = LogWorld()
    for size, stamp in shape:
        world.append(bytes(size), timestamp=stamp)
    world.settle()
    world.evict_all()
    first = next(((o, s) for o, (_, s) in enumerate(shape) if s >= wanted), None)
    assert world.store.find_time_now(world.partition, wanted) == first


def test_what_is_not_flushed_is_not_readable():
    world = LogWorld()
    world.append(b"a")
    world.settle()
    world.fake.hold_all("write", ".log")
    world.append(b"b")
    world.run()
    assert world.values() == [b"a"]
    assert world.log.readable_offset == 1
    world.fake.release_all()
    world.settle()


def test_a_batch_larger_than_a_read_window_is_read_whole():
    world = LogWorld(settings=LogSettings(batch_bytes_max=8 * MIB))
    world.append(b"small")
    world.append(b"x" * (5 * MIB))
    world.append(b"after")
    world.settle()
    world.evict_all()
    assert [len(value) for value in world.values()] == [5, 5 * MIB, 5]


def test_slices_stay_as_they_are_while_they_are_held():
    world = LogWorld(memory_bytes=4 * MIB)
    world.append(b"keep me" * 100)
    world.settle()
    held = world.store.read_now(world.partition, 0, 1000)
    before = held.tobytes()
    for _ in range(100):
        world.append(bytes(90_000))
        world.settle()
    assert held.tobytes() == before
    held.release()


def test_readers_that_hold_all_memory_get_a_typed_refusal():
    world = LogWorld(memory_bytes=2 * MIB)
    for _ in range(40):
        world.append(bytes(100_000))
        world.settle()
    held = []
    with pytest.raises(PartitionBusy):
        held.extend(world.store.read_now(world.partition, offset, 100_000) for offset in range(40))
    for slices in held:
        slices.release()
    assert len(world.values()) == 40


def test_all_memory_comes_back():
    world = LogWorld(memory_bytes=8 * MIB)
    arena = world.store._context.arena
    for number in range(50):
        world.append(bytes(number * 1000))
        world.settle()
    assert len(world.values()) == 50
    world.close()
    assert arena.free_bytes == arena.total_bytes


def test_a_read_in_the_background_calls_back_once_when_it_is_done():
    world = LogWorld()
    world.append(b"a")
    world.settle()
    world.evict_all()
    done, failed = [], []
    world.store.read(world.partition, 0, 100, done=done.append, failed=failed.append)
    assert not done
    for _ in range(5):
        world.run()
    assert len(done) == 1 and not failed
    done[0].release()


def test_a_read_is_not_disturbed_by_the_sealing_of_its_segment():
    world = LogWorld()
    for _ in range(9):
        world.append(bytes(100_000))
        world.settle()
    world.evict_all()
    world.fake.hold_all("read")
    done, failed = [], []
    world.store.read(world.partition, 0, 50_000, done=done.append, failed=failed.append)
    world.run()
    for _ in range(5):
        world.append(bytes(100_000))
        world.run()
        world.run()
    world.fake.release_all()
    world.settle()
    assert len(done) == 1 and not failed
    done[0].release()


def test_a_read_under_way_is_answered_before_its_log_is_left():
    world = LogWorld()
    for number in range(20):
        world.append(b"%d" % number + bytes(100_000))
        world.settle()
    world.evict_all()
    world.fake.delays = True
    answers = []
    for offset in range(20):
        world.store.read(world.partition, offset, 500_000, done=answers.append, failed=answers.append)
    world.store.reopen(world.partition, now_ms=world.now_ms)
    assert len(answers) == 20
    for answer in answers:
        answer.release()
    world.close()
    assert not world.fake.open_paths


def test_a_time_is_found_in_the_background_and_exactly_one_of_the_two_is_told(world):
    found, failures = [], []
    for wanted in (990, 1_991):
        world.store.search(
            world.partition,
            lambda reader, wanted=wanted: reader.find_time(wanted),
            done=found.append,
            failed=failures.append,
        )
    while len(found) + len(failures) < 2:
        world.run()
    assert (sorted(found, key=str), failures) == ([None, TimedOffset(297, 990)], [])


def test_no_file_is_closed_under_a_search_for_a_time(world):
    found = []
    world.evict_all()
    world.fake.hold_all("read", ".log")
    world.store.search(
        world.partition, lambda reader: reader.find_time(990), done=found.append, failed=found.append
    )
    world.run()
    with pytest.raises(AssertionError, match="all calls in flight are held"):
        world.close()  # waits for the read; the fake disk would not let its file be closed either
    world.fake.release_all()
    world.run()
    assert found == [TimedOffset(297, 990)]


def test_a_read_that_began_before_its_segment_was_sealed_goes_on_beside_a_later_one():
    world = LogWorld()
    for number in range(30):
        world.append(b"%d" % number + bytes(20_000))
        world.settle()
    world.evict_all()
    segment = world.log.segments[0]
    world.log.roll(world.now_ms)
    world.settle()
    for handle in list(world.log.files._open.values()):
        if handle.holders == 0:
            world.disk.close(world.log.files._open.pop(handle.key).file)
    late = world.log.files.hold(0)  # a read of the sealed segment holds it for reading only
    reader = world.store._readers[world.partition]
    with run_now(world.disk, reader._read_disk(segment, 5, 1)) as slices:
        assert slices.next_offset == 6
    world.log.files.release(late)


def test_the_bytes_of_a_log_are_those_of_its_batches_over_all_segments(world):
    assert len(world.log.segments) > 1
    nbytes = at = 0
    while at < world.log.readable_offset:
        with world.store.read_now(world.partition, at, 100_000) as slices:
            nbytes, at = nbytes + slices.nbytes, slices.next_offset
    assert world.log.log_bytes == nbytes
    batch = batch_of(b"more")
    world.append_raw(batch)
    assert world.log.log_bytes == nbytes + len(batch)
