"""A shard has one place to wait: doorbells come out of the same call as completions."""

from __future__ import annotations

import errno
import os
import select
import time

import pytest

from ringlog.disk.api import Completion, WatchingDisk
from ringlog.disk.plain import PlainDisk
from ringlog.disk.uring import UringDisk


@pytest.fixture(params=["io_uring", "io_uring with a tiny ring", "plain"])
def disk(request):
    engine = (
        PlainDisk() if request.param == "plain" else UringDisk(entries=2 if "tiny" in request.param else 64)
    )
    yield engine
    engine.shutdown()


@pytest.fixture
def bell():
    fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    yield fd
    os.close(fd)


def ring(bell):
    os.eventfd_write(bell, 1)


def answer(bell):
    return os.eventfd_read(bell)


def test_the_engine_watches(disk):
    assert isinstance(disk, WatchingDisk)


def test_a_doorbell_ends_a_wait_though_no_call_is_in_flight(disk, bell):
    token = disk.watch(bell)
    assert disk.completions(0.01) == []
    ring(bell)
    assert disk.completions(None) == [Completion(token, select.POLLIN)]
    assert disk.in_flight == 0


def test_a_doorbell_rings_again_after_it_was_answered(disk, bell):
    token = disk.watch(bell)
    for _ in range(100):
        ring(bell)
        assert disk.completions(5.0) == [Completion(token, select.POLLIN)]
        answer(bell)
        assert disk.completions() == []


def test_a_doorbell_that_rang_before_the_watch_is_heard(disk, bell):
    ring(bell)
    token = disk.watch(bell)
    assert disk.completions(5.0) == [Completion(token, select.POLLIN)]


def test_many_rings_are_heard_at_least_once_and_end_with_the_answer(disk, bell):
    token = disk.watch(bell)
    disk.completions()
    for _ in range(500):
        ring(bell)
    assert disk.completions(5.0) == [Completion(token, select.POLLIN)]
    assert answer(bell) == 500
    while disk.completions(0.01):
        pass
    ring(bell)
    assert disk.completions(5.0) == [Completion(token, select.POLLIN)]


def test_doorbells_and_completions_come_together(disk, bell, tmp_path):
    watch = disk.watch(bell)
    file = disk.open(str(tmp_path / "log"), write=True, create=True)
    write = disk.write(file, [memoryview(b"abc")], 0, durable=True)
    ring(bell)
    heard = set()
    while disk.in_flight or len(heard) < 2:
        heard |= set(disk.completions(None))
    assert heard == {Completion(watch, select.POLLIN), Completion(write, 3)}


def test_waiting_for_one_call_keeps_the_doorbell_for_later(disk, bell, tmp_path):
    watch = disk.watch(bell)
    ring(bell)
    file = disk.open(str(tmp_path / "log"), write=True, create=True)
    assert disk.wait(disk.write(file, [memoryview(b"abc")], 0, durable=True)) == 3
    assert disk.completions(5.0) == [Completion(watch, select.POLLIN)]


def test_several_doorbells_have_their_own_tokens(disk):
    bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(5)]
    tokens = [disk.watch(bell) for bell in bells]
    disk.completions()
    ring(bells[3])
    assert [completion.token for completion in disk.completions(5.0)] == [tokens[3]]
    for bell in bells:
        os.close(bell)


def test_more_doorbells_than_the_completion_queue_holds_are_all_heard_every_time(disk):
    """The kernel ends a watch when its completion queue overflows: the engine renews it."""
    bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(20)]
    tokens = {disk.watch(bell) for bell in bells}
    for _ in range(10):
        for bell in bells:
            ring(bell)
        heard = set()
        while heard != tokens:
            heard |= {completion.token for completion in disk.completions(None)}
        for bell in bells:
            answer(bell)
    for bell in bells:
        os.close(bell)


def test_nothing_is_heard_after_unwatch(disk, bell):
    token = disk.watch(bell)
    ring(bell)
    disk.unwatch(token)
    ring(bell)
    assert disk.completions(0.02) == []
    disk.unwatch(token)


def test_a_wait_ends_in_time_while_a_doorbell_is_silent(disk, bell):
    disk.watch(bell)
    began = time.monotonic()
    assert disk.completions(0.05) == []
    assert 0.05 <= time.monotonic() - began < 5


def test_watching_what_is_no_descriptor_results_in_an_error_and_ends(disk, bell):
    gone = os.dup(bell)
    os.close(gone)
    token = disk.watch(gone)
    assert disk.completions(5.0) == [Completion(token, -errno.EBADF)]
    assert disk.completions(5.0) == []
