"""What the disk interface promises, on every engine: io_uring, plain and fake."""

from __future__ import annotations

import errno
import gc
import itertools
import time

import pytest

from ringlog.disk.api import Completion, Disk
from ringlog.disk.memory import aligned
from ringlog.errors import InvariantBroken
from ringlog.limits import BLOCK_BYTES
from tests.support.fake_disk import FakeDisk


def view(content):
    return memoryview(bytearray(content))


def filled(nbytes, byte):
    memory = aligned(nbytes)
    memory[:] = bytes([byte]) * nbytes
    return memory


def write_file(disk, path, content):
    file = disk.open(path, write=True, create=True)
    assert disk.wait(disk.write(file, [view(content)], 0, durable=False)) == len(content)
    disk.close(file)


def read(disk, file, position, nbytes):
    into = view(bytes(nbytes))
    result = disk.wait(disk.read(file, into, position))
    return bytes(into[:result])


def drain(disk):
    """All completions, over as many calls as it takes."""
    drained = []
    while disk.in_flight:
        drained += disk.completions(None)
    return drained


@pytest.fixture
def file(disk, root):
    return disk.open(f"{root}/log", write=True, create=True)


@pytest.fixture
def direct(disk, root):
    return disk.open(f"{root}/direct", write=True, create=True, direct=True)


# -- the interface -------------------------------------------------------------------------------------------


def test_the_engine_is_a_disk(disk):
    assert isinstance(disk, Disk)
    assert disk.name in ("io_uring", "plain", "fake")


# -- the name space ------------------------------------------------------------------------------------------


def test_opening_a_missing_file_raises_file_not_found(disk, root):
    with pytest.raises(FileNotFoundError) as raised:
        disk.open(f"{root}/missing")
    assert raised.value.errno == errno.ENOENT
    assert raised.value.filename == f"{root}/missing"
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/missing", write=True)


def test_creating_in_a_missing_directory_raises_file_not_found(disk, root):
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/missing/log", write=True, create=True)


def test_opening_a_directory_for_writing_raises(disk, root):
    with pytest.raises(IsADirectoryError):
        disk.open(root, write=True)


def test_create_makes_an_empty_file(disk, root):
    file = disk.open(f"{root}/log", write=True, create=True)
    assert file.path == f"{root}/log"
    assert disk.size(file) == 0
    assert disk.exists(f"{root}/log")


def test_create_keeps_the_content_of_a_file_that_exists(disk, root):
    write_file(disk, f"{root}/log", b"kept")
    file = disk.open(f"{root}/log", write=True, create=True)
    assert read(disk, file, 0, 10) == b"kept"


def test_make_dir_makes_parents_and_is_content_with_what_exists(disk, root):
    disk.make_dir(f"{root}/a/b/c")
    disk.make_dir(f"{root}/a/b/c")
    assert disk.exists(f"{root}/a/b/c")
    assert disk.exists(f"{root}/a")
    assert not disk.exists(f"{root}/b")


def test_make_dir_raises_where_a_file_stands(disk, root):
    write_file(disk, f"{root}/log", b"x")
    with pytest.raises(FileExistsError):
        disk.make_dir(f"{root}/log")


def test_list_dir_gives_plain_files_with_sizes_sorted_by_name(disk, root):
    write_file(disk, f"{root}/b", b"22")
    write_file(disk, f"{root}/a", b"1")
    disk.make_dir(f"{root}/directory")
    write_file(disk, f"{root}/directory/inner", b"333")
    assert disk.list_dir(root) == [("a", 1), ("b", 2)]


def test_list_dir_of_a_missing_directory_raises_file_not_found(disk, root):
    with pytest.raises(FileNotFoundError):
        disk.list_dir(f"{root}/missing")


def test_rename_replaces_what_stood_there(disk, root):
    write_file(disk, f"{root}/old", b"old")
    write_file(disk, f"{root}/new", b"new")
    disk.rename(f"{root}/new", f"{root}/old")
    assert disk.list_dir(root) == [("old", 3)]
    assert read(disk, disk.open(f"{root}/old"), 0, 10) == b"new"


def test_a_renamed_directory_takes_its_files_with_it_open_ones_too(disk, root):
    disk.make_dir(f"{root}/old")
    write_file(disk, f"{root}/old/log", b"kept")
    file = disk.open(f"{root}/old/log")
    disk.rename(f"{root}/old", f"{root}/new")
    assert disk.list_dirs(root) == ["new"]
    assert disk.list_dir(f"{root}/new") == [("log", 4)]
    assert read(disk, file, 0, 10) == b"kept"
    with pytest.raises(FileNotFoundError):
        disk.list_dir(f"{root}/old")


def test_only_an_empty_directory_is_removed(disk, root):
    disk.make_dir(f"{root}/dir")
    write_file(disk, f"{root}/dir/log", b"x")
    with pytest.raises(OSError) as raised:
        disk.remove_dir(f"{root}/dir")
    assert raised.value.errno == errno.ENOTEMPTY
    disk.remove(f"{root}/dir/log")
    disk.remove_dir(f"{root}/dir")
    assert disk.list_dirs(root) == []


def test_renaming_a_missing_file_raises_file_not_found(disk, root):
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{root}/missing", f"{root}/new")


def test_an_open_file_follows_its_content_through_rename_and_remove(disk, root):
    write_file(disk, f"{root}/log", b"content")
    file = disk.open(f"{root}/log")
    disk.rename(f"{root}/log", f"{root}/moved")
    assert read(disk, file, 0, 10) == b"content"
    disk.remove(f"{root}/moved")
    assert read(disk, file, 0, 10) == b"content"
    assert not disk.exists(f"{root}/moved")


def test_removing_a_missing_file_raises_file_not_found(disk, root):
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{root}/missing")


def test_truncate_sets_the_length_and_new_bytes_are_zero(disk, file):
    disk.wait(disk.write(file, [view(b"abcdef")], 0, durable=False))
    disk.truncate(file, 2)
    assert disk.size(file) == 2
    disk.truncate(file, 5)
    assert read(disk, file, 0, 10) == b"ab\0\0\0"


# -- writing and reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
def test_a_write_puts_its_pieces_in_order_at_its_position(disk, file, durable):
    pieces = [view(b"one"), view(b"two"), view(b"three")]
    assert disk.wait(disk.write(file, pieces, 4, durable=durable)) == 11
    assert read(disk, file, 0, 100) == b"\0\0\0\0onetwothree"
    assert disk.size(file) == 15


def test_a_write_inside_a_file_leaves_the_rest(disk, file):
    disk.wait(disk.write(file, [view(b"0123456789")], 0, durable=False))
    disk.wait(disk.write(file, [view(b"ab")], 3, durable=True))
    assert read(disk, file, 0, 100) == b"012ab56789"


@pytest.mark.parametrize("durable", [False, True])
def test_a_direct_write_of_aligned_pieces_is_read_back_directly(disk, direct, durable):
    pieces = [filled(2 * BLOCK_BYTES, 1), filled(BLOCK_BYTES, 2)]
    assert disk.wait(disk.write(direct, pieces, BLOCK_BYTES, durable=durable)) == 3 * BLOCK_BYTES
    into = aligned(8 * BLOCK_BYTES)
    assert disk.wait(disk.read(direct, into, BLOCK_BYTES)) == 3 * BLOCK_BYTES
    assert bytes(into[: 3 * BLOCK_BYTES]) == b"\1" * 2 * BLOCK_BYTES + b"\2" * BLOCK_BYTES


@pytest.mark.parametrize("count", [60, 61, 200, 1025, 1500])
def test_a_write_may_have_more_pieces_than_a_system_call_takes(disk, direct, count):
    pieces = [filled(BLOCK_BYTES, number % 251) for number in range(count)]
    assert disk.wait(disk.write(direct, pieces, 0, durable=False)) == count * BLOCK_BYTES
    into = aligned(count * BLOCK_BYTES)
    assert disk.wait(disk.read(direct, into, 0)) == count * BLOCK_BYTES
    assert into == b"".join(pieces)


def test_read_only_memory_may_be_written_from(disk, file):
    assert disk.wait(disk.write(file, [memoryview(b"constant")], 0, durable=False)) == 8
    assert read(disk, file, 0, 100) == b"constant"


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [memoryview(b"")],
        [memoryview(b"whole"), memoryview(b"")],
        [memoryview(b"every second byte")[::2]],
        [memoryview(b"wide items..").cast("I")],
    ],
)
def test_a_write_of_anything_but_contiguous_bytes_is_refused(disk, file, pieces):
    with pytest.raises(ValueError):
        disk.write(file, pieces, 0, durable=False)
    assert disk.in_flight == 0


@pytest.mark.parametrize("into", [memoryview(b"constant"), memoryview(bytearray()), view(b"stride")[::2]])
def test_a_read_into_anything_but_writable_bytes_is_refused(disk, file, into):
    with pytest.raises(ValueError):
        disk.read(file, into, 0)
    assert disk.in_flight == 0


def test_a_read_across_the_end_is_short_and_one_behind_it_is_empty(disk, file):
    disk.wait(disk.write(file, [view(b"abc")], 0, durable=False))
    assert read(disk, file, 1, 100) == b"bc"
    assert read(disk, file, 3, 100) == b""
    assert read(disk, file, 1000, 100) == b""


def test_writing_to_a_file_opened_for_reading_results_in_an_error(disk, root):
    write_file(disk, f"{root}/log", b"safe")
    file = disk.open(f"{root}/log")
    assert disk.wait(disk.write(file, [view(b"x")], 0, durable=True)) == -errno.EBADF
    assert disk.wait(disk.preallocate(file, 0, 4096)) == -errno.EBADF
    with pytest.raises(OSError):
        disk.truncate(file, 0)
    assert read(disk, file, 0, 10) == b"safe"


def test_memory_that_the_caller_forgot_is_kept_until_the_completion(disk, root):
    files = [disk.open(f"{root}/{number}", write=True, create=True) for number in range(20)]
    for number, file in enumerate(files):
        disk.write(file, [view(bytes([number]) * 100_000) for _ in range(3)], 0, durable=True)
    disk.submit()
    gc.collect()
    overwriting = [bytearray(b"\xff" * 100_000) for _ in range(60)]
    assert {completion.result for completion in drain(disk)} == {300_000}
    for number, file in enumerate(files):
        assert read(disk, file, 0, 400_000) == bytes([number]) * 300_000
    assert len(overwriting) == 60


# -- flushing and preallocating ------------------------------------------------------------------------------


def test_flushes_result_in_zero(disk, root, file):
    disk.wait(disk.write(file, [view(b"abc")], 0, durable=False))
    assert disk.wait(disk.flush(file)) == 0
    assert disk.wait(disk.flush_dir(root)) == 0


def test_flushing_a_missing_directory_raises_file_not_found(disk, root):
    with pytest.raises(FileNotFoundError):
        disk.flush_dir(f"{root}/missing")


def test_preallocated_space_is_zero_and_the_file_covers_it(disk, direct):
    assert disk.wait(disk.preallocate(direct, 0, 16 * BLOCK_BYTES)) == 0
    assert disk.size(direct) == 16 * BLOCK_BYTES
    into = aligned(16 * BLOCK_BYTES)
    assert disk.wait(disk.read(direct, into, 0)) == 16 * BLOCK_BYTES
    assert not any(into)


def test_preallocation_keeps_content_and_never_shrinks(disk, file):
    disk.wait(disk.write(file, [view(b"content")], 0, durable=False))
    assert disk.wait(disk.preallocate(file, 0, 4)) == 0
    assert disk.size(file) == 7
    assert disk.wait(disk.preallocate(file, 4096, 4096)) == 0
    assert disk.size(file) == 8192
    assert read(disk, file, 0, 8) == b"content\0"


# -- queueing, submitting, completing ------------------------------------------------------------------------


def test_nothing_happens_before_submit(disk, file):
    disk.write(file, [view(b"abc")], 0, durable=False)
    assert disk.size(file) == 0
    disk.submit()
    drain(disk)
    assert disk.size(file) == 3


def test_completions_submits_what_is_queued(disk, file):
    token = disk.write(file, [view(b"abc")], 0, durable=False)
    assert drain(disk) == [Completion(token, 3)]


def test_waiting_returns_at_least_one_completion(disk, file):
    for number in range(8):
        disk.write(file, [view(b"abc")], 3 * number, durable=True)
    assert disk.completions(None) != []
    assert disk.completions(30.0) != [] or disk.in_flight == 0


def test_what_has_completed_is_found_without_waiting(disk, file):
    disk.write(file, [view(b"abc")], 0, durable=True)
    disk.submit()
    found, deadline = [], time.monotonic() + 10
    while disk.in_flight:
        found += disk.completions(0.0)
        assert time.monotonic() < deadline
    assert [completion.result for completion in found] == [3]


def test_completions_returns_at_once_when_nothing_is_in_flight(disk):
    assert disk.completions(None) == []
    assert disk.completions(30.0) == []
    assert disk.completions() == []


def test_each_call_completes_exactly_once_with_its_own_result(disk, file):
    expected = {
        disk.write(file, [view(bytes(length))], 1000 * length, durable=False): length
        for length in range(1, 100)
    }
    assert sorted(drain(disk)) == sorted(expected.items())
    assert disk.completions() == []


def test_tokens_are_unique_and_never_zero(disk, root, file):
    tokens = [
        disk.write(file, [view(b"x")], 0, durable=True),
        disk.flush(file),
        disk.flush_dir(root),
        disk.preallocate(file, 0, 4096),
        disk.read(file, view(b"into"), 0),
    ]
    drain(disk)
    tokens.append(disk.flush(file))
    assert len(set(tokens)) == 6
    assert all(token > 0 for token in tokens)
    drain(disk)


def test_more_calls_than_any_queue_holds_are_all_carried_out(disk, file):
    expected = {disk.write(file, [view(b"x")], position, durable=False): 1 for position in range(5000)}
    assert disk.in_flight == 5000
    assert dict(drain(disk)) == expected
    assert read(disk, file, 0, 6000) == b"x" * 5000


def test_wait_returns_one_result_and_keeps_the_others(disk, file):
    first = disk.write(file, [view(b"1")], 0, durable=False)
    second = disk.write(file, [view(b"22")], 1, durable=False)
    third = disk.write(file, [view(b"333")], 3, durable=False)
    assert disk.wait(second) == 2
    assert disk.in_flight == 2
    assert sorted(drain(disk)) == [(first, 1), (third, 3)]


def test_waiting_for_a_call_submits_it(disk, file):
    assert disk.wait(disk.write(file, [view(b"abc")], 0, durable=False)) == 3
    assert disk.in_flight == 0


def test_waiting_for_a_call_that_is_not_in_flight_is_refused(disk, file):
    token = disk.flush(file)
    disk.wait(token)
    for wrong in (token, token + 1):
        with pytest.raises(Exception, match="in flight"):
            disk.wait(wrong)


def test_in_flight_counts_from_queueing_to_returning(disk, file):
    assert disk.in_flight == 0
    tokens = [disk.flush(file) for _ in range(3)]
    assert disk.in_flight == 3
    disk.submit()
    assert disk.in_flight == 3
    disk.wait(tokens[2])
    assert disk.in_flight == 2
    drain(disk)
    assert disk.in_flight == 0


def test_calls_on_many_files_go_in_one_submission(disk, root):
    files = [disk.open(f"{root}/{number}", write=True, create=True, direct=True) for number in range(100)]
    memory = filled(BLOCK_BYTES, 9)
    tokens = {disk.write(file, [memory], 0, durable=True): file for file in files}
    disk.submit()
    assert {completion.token for completion in drain(disk)} == set(tokens)
    assert all(disk.size(file) == BLOCK_BYTES for file in files)


def test_an_error_of_one_call_leaves_the_others_alone(disk, root, file):
    write_file(disk, f"{root}/other", b"safe")
    other = disk.open(f"{root}/other")
    good = [disk.write(file, [view(b"abc")], 3 * number, durable=False) for number in range(3)]
    bad = disk.write(other, [view(b"abc")], 0, durable=False)
    more = [disk.write(file, [view(b"abc")], 9 + 3 * number, durable=False) for number in range(3)]
    results = dict(drain(disk))
    assert results == dict.fromkeys([*good, *more], 3) | {bad: -errno.EBADF}


def test_results_do_not_depend_on_the_order_of_asking(disk, file):
    pieces = [view(bytes([65 + number]) * 10) for number in range(4)]
    for order in itertools.permutations(range(4)):
        tokens = [disk.write(file, [pieces[at]], 10 * at, durable=False) for at in order]
        for token in reversed(tokens):
            assert disk.wait(token) == 10
        assert read(disk, file, 0, 100) == b"".join(pieces)


# -- the end -------------------------------------------------------------------------------------------------


def test_shutdown_waits_for_what_is_in_flight(disk, root, file):
    disk.write(file, [view(b"late")], 0, durable=True)
    disk.shutdown()
    if isinstance(disk, FakeDisk):
        assert disk.content(f"{root}/log") == b"late"
    else:
        with open(f"{root}/log", "rb") as late:
            assert late.read() == b"late"


def test_a_call_after_shutdown_raises(disk, root, file):
    disk.shutdown()
    for call in (lambda: disk.flush(file), lambda: disk.flush_dir(root)):
        with pytest.raises((InvariantBroken, TypeError, AssertionError)):
            call()
