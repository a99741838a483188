"""Each trap of the liburing package, and that the io_uring engine stays out of it."""

from __future__ import annotations

import ctypes
import errno
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import liburing
import pytest

from ringlog.disk import uring
from ringlog.disk.constants import LIBURING_IOVEC_PIECES_MAX
from ringlog.disk.memory import aligned
from ringlog.disk.uring import UringDisk
from ringlog.errors import InvariantBroken
from ringlog.limits import BLOCK_BYTES


@pytest.fixture
def disk():
    engine = UringDisk(entries=4)
    yield engine
    engine.shutdown()


@pytest.fixture
def file(disk, tmp_path):
    return disk.open(str(tmp_path / "log"), write=True, create=True)


@pytest.fixture
def idle(disk):
    """A disk that has something to wait for that never comes."""
    receiver, sender = os.pipe()
    disk.watch(receiver)
    yield disk
    os.close(receiver)
    os.close(sender)


@pytest.fixture
def ring_signal():
    """Have a handler run after so many seconds of the test."""
    before = signal.getsignal(signal.SIGALRM)

    def after(seconds, handler, every=0.0):
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, seconds, every)

    yield after
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def leave_errno_behind(number):
    location = ctypes.CDLL(None).__errno_location
    location.restype = ctypes.c_void_p
    ctypes.c_int.from_address(location()).value = number


def view(content):
    return memoryview(bytearray(content))


def results_of(disk):
    results = {}
    while disk.in_flight:
        for token, result in disk.completions(None):
            assert token not in results
            results[token] = result
    return results


# -- exceptions carry a stale errno --------------------------------------------------------------------


def test_an_error_of_the_ring_carries_its_own_errno_and_not_an_old_one():
    leave_errno_behind(errno.ENOENT)
    with pytest.raises(OSError) as raised:
        UringDisk(entries=0)
    assert raised.value.errno == errno.EINVAL


def test_a_wait_that_ends_by_time_raises_nothing_whatever_errno_was(idle):
    leave_errno_behind(errno.ENOENT)
    began = time.monotonic()
    assert idle.completions(0.03) == []
    assert 0.03 <= time.monotonic() - began < 5


def test_signals_in_a_wait_are_handled_and_the_wait_goes_on(idle, ring_signal):
    handled = []
    ring_signal(0.01, lambda *_: handled.append(leave_errno_behind(errno.ENOENT)), every=0.01)
    began = time.monotonic()
    assert idle.completions(0.08) == []
    assert time.monotonic() - began >= 0.08
    assert len(handled) >= 2


# -- waiting holds the GIL, and must not hold up Ctrl-C ------------------------------------------------


@pytest.mark.parametrize("wait_s", [None, 60.0])
def test_a_handler_that_raises_ends_a_wait_at_once(idle, ring_signal, wait_s):
    def interrupt(*_):
        raise KeyboardInterrupt

    ring_signal(0.05, interrupt)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        idle.completions(wait_s)
    assert time.monotonic() - began < 0.05 + 0.1


def test_ctrl_c_ends_a_wait_for_one_call(disk, ring_signal, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    silent = os.open(tmp_path / "fifo", os.O_RDWR)
    file = disk.open(str(tmp_path / "fifo"))
    token = disk.read(file, view(b"never"), 0)
    ring_signal(0.02, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        disk.wait(token)
    os.write(silent, b"bytes")
    assert disk.wait(token) == 5
    os.close(silent)


def test_no_sleep_is_longer_than_a_slice_so_that_a_signal_just_before_it_is_seen(idle):
    began = time.monotonic()
    idle._wait(None)
    assert time.monotonic() - began < 0.3


def test_waits_that_end_early_do_not_pile_up_timers(disk, file):
    for _ in range(200):
        disk.flush(file)
        while disk.in_flight:
            disk.completions(0.09)
    assert len(disk._timers) <= 2


# -- a full queue --------------------------------------------------------------------------------------


def test_the_binding_gives_a_null_entry_when_the_queue_is_full():
    ring = liburing.io_uring()
    liburing.io_uring_queue_init(2, ring, 0)
    entries = [liburing.io_uring_get_sqe(ring) for _ in range(3)]
    assert [bool(entry) for entry in entries] == [True, True, False]
    liburing.io_uring_queue_exit(ring)


def test_a_full_queue_loses_no_call(disk, file):
    expected = {
        disk.write(file, [view(b"x" * length)], 1000 * length, durable=False): length
        for length in range(1, 300)
    }
    assert results_of(disk) == expected


def test_a_kernel_that_refuses_for_a_while_loses_no_call(disk, file, monkeypatch):
    refusals = iter([errno.EBUSY, errno.EAGAIN, errno.EINTR])
    real_submit = liburing.io_uring_submit

    def submit(ring):
        for number in refusals:
            raise OSError(number, os.strerror(number))
        return real_submit(ring)

    monkeypatch.setattr(uring, "io_uring_submit", submit)
    token = disk.write(file, [view(b"abc")], 0, durable=False)
    disk.submit()
    assert results_of(disk) == {token: 3}
    assert next(refusals, None) is None


def test_a_kernel_that_refuses_for_good_is_reported(disk, file, monkeypatch):
    def submit(ring):
        raise OSError(errno.EBADFD, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(uring, "io_uring_submit", submit)
        disk.flush(file)
        with pytest.raises(OSError, match="broken"):
            disk.submit()
    assert list(results_of(disk).values()) == [0]


def test_waiting_for_a_call_that_has_completed_still_submits_the_others(disk, file):
    done = disk.flush(file)
    disk.submit()
    while done not in disk._done:
        disk._reap()
    disk.write(file, [view(b"abc")], 0, durable=False)
    assert disk.wait(done) == 0
    deadline = time.monotonic() + 5
    while disk.size(file) == 0:
        assert time.monotonic() < deadline
    disk.completions(None)


# -- a completion queue that wraps ---------------------------------------------------------------------


def test_results_stay_with_their_calls_while_the_completion_queue_wraps(disk, file):
    for round_number in range(60):
        expected = {
            disk.write(file, [view(b"x" * length)], 0, durable=False): length
            for length in range(1 + round_number % 5, 8)
        }
        assert results_of(disk) == expected


def test_more_completions_than_the_queue_holds_are_kept(disk, file):
    expected = {disk.write(file, [view(b"x")], position, durable=False): 1 for position in range(200)}
    disk.submit()
    assert results_of(disk) == expected


# -- user data -----------------------------------------------------------------------------------------


def test_the_binding_refuses_user_data_of_zero_and_tokens_begin_at_one(disk, file):
    with pytest.raises(ValueError):
        liburing.io_uring_sqe().user_data = 0
    assert disk.flush(file) >= 1


# -- entries that are prepared again -------------------------------------------------------------------


def test_a_call_inherits_nothing_from_the_one_before(disk, file, tmp_path):
    """The kernel refuses a preallocation or a read whose entry still has the flags of a durable write."""
    assert disk.wait(disk.write(file, [view(b"abc")], 0, durable=True)) == 3
    reserve = disk.preallocate(file, 0, BLOCK_BYTES)
    names = disk.flush_dir(str(tmp_path))
    data = disk.flush(file)
    into = view(b"...")
    read = disk.read(file, into, 0)
    plain = disk.write(file, [view(b"def")], 3, durable=False)
    assert results_of(disk) == {reserve: 0, names: 0, data: 0, read: 3, plain: 3}


# -- flags, that only some calls of the binding take -----------------------------------------------------


def test_a_durable_write_asks_for_a_synchronous_one_and_a_flush_for_the_data(
    disk, file, tmp_path, monkeypatch
):
    """Nothing but a loss of power would show that they do not."""
    asked = []

    def noting(name, at):
        real = getattr(liburing, name)

        def prepare(*arguments):
            asked.append(arguments[at])
            real(*arguments)

        monkeypatch.setattr(uring, name, prepare)

    noting("io_uring_prep_writev2", 5)
    noting("io_uring_prep_fsync", 2)
    disk.write(file, [view(b"abc")], 0, durable=True)
    disk.write(file, [view(b"abc")], 0, durable=False)
    disk.flush(file)
    disk.flush_dir(str(tmp_path))
    data_only, everything = 1, 0
    assert asked == [os.RWF_DSYNC, 0, data_only, everything]
    assert sorted(results_of(disk).values()) == [0, 0, 3, 3]


# -- vectors -------------------------------------------------------------------------------------------


def test_the_binding_takes_as_many_pieces_as_we_believe():
    liburing.iovec([b"x"] * LIBURING_IOVEC_PIECES_MAX)
    with pytest.raises(OverflowError):
        liburing.iovec([b"x"] * (LIBURING_IOVEC_PIECES_MAX + 1))


def test_a_vector_lives_until_its_call_completed(disk, file):
    """The caller keeps nothing and the memory is used for other things: the kernel must not see that."""
    tokens = [
        disk.write(file, [view(bytes([number]) * 50_000)] * 2, 100_000 * number, durable=True)
        for number in range(3)
    ]
    gc.collect()
    other = [view(b"\xff" * 50_000) for _ in range(20)]
    assert results_of(disk) == dict.fromkeys(tokens, 100_000)
    into = view(bytes(300_000))
    disk.wait(disk.read(file, into, 0))
    assert bytes(into) == b"".join(bytes([number]) * 100_000 for number in range(3))
    assert len(other) == 20


def test_shared_memory_can_be_written_from_and_read_into(disk, tmp_path):
    file = disk.open(str(tmp_path / "direct"), write=True, create=True, direct=True)
    memory = aligned(4 * BLOCK_BYTES)
    memory[:3] = b"abc"
    assert disk.wait(disk.write(file, [memory[: 2 * BLOCK_BYTES]], 0, durable=True)) == 2 * BLOCK_BYTES
    assert disk.wait(disk.read(file, memory[2 * BLOCK_BYTES :], 0)) == 2 * BLOCK_BYTES
    assert memory[2 * BLOCK_BYTES : 2 * BLOCK_BYTES + 3] == b"abc"


# -- one thread ----------------------------------------------------------------------------------------


def test_another_thread_is_refused_by_name_of_the_rule(disk, file):
    refused = []

    def use():
        disk.flush(file)
        with pytest.raises(InvariantBroken, match="thread"):
            disk.submit()
        refused.append(True)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert refused == [True]


# -- numbers that are used again -----------------------------------------------------------------------


def test_closing_a_file_submits_its_calls_before_its_number_goes_to_another(disk, file, tmp_path):
    token = disk.write(file, [view(b"first")], 0, durable=False)
    disk.close(file)
    other = disk.open(str(tmp_path / "other"), write=True, create=True)
    assert disk.wait(token) == 5
    assert disk.size(other) == 0
    assert (tmp_path / "log").read_bytes() == b"first"


def test_directory_descriptors_are_closed_with_their_flush(disk, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        disk.wait(disk.flush_dir(str(tmp_path)))
        disk.flush_dir(str(tmp_path))
    results_of(disk)
    assert len(os.listdir("/proc/self/fd")) == before


# -- older kernels, and the end ------------------------------------------------------------------------


def test_a_kernel_without_deferred_completions_gets_a_plain_ring_and_a_warning(monkeypatch, caplog, tmp_path):
    unknown_to_any_kernel = 1 << 31
    monkeypatch.setattr(uring, "_BEST_FLAGS", unknown_to_any_kernel)
    with caplog.at_level(logging.WARNING):
        disk = UringDisk()
    assert "DEFER_TASKRUN" in caplog.text
    file = disk.open(str(tmp_path / "log"), write=True, create=True)
    assert disk.wait(disk.write(file, [view(b"abc")], 0, durable=True)) == 3
    disk.shutdown()


def test_the_best_ring_is_used_where_the_kernel_has_it(caplog):
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    with caplog.at_level(logging.WARNING):
        UringDisk().shutdown()
    assert ("DEFER_TASKRUN" in caplog.text) == ((major, minor) < (6, 1))


def test_use_after_shutdown_is_an_error_and_not_a_crash(tmp_path):
    """In a process of its own: what is tested is that it lives."""
    script = f"""
from ringlog.disk.uring import UringDisk
disk = UringDisk()
file = disk.open({str(tmp_path / "log")!r}, write=True, create=True)
disk.shutdown()
refused = 0
for call in (disk.submit, disk.completions, lambda: disk.flush(file), lambda: disk.watch(0)):
    try:
        call()
    except TypeError:
        refused += 1
disk.shutdown()
print(refused)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "4"), ran.stderr


def test_shutdown_closes_ring_and_files(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    disk = UringDisk()
    disk.open(str(tmp_path / "log"), write=True, create=True)
    disk.shutdown()
    assert len(os.listdir("/proc/self/fd")) == before
