"""Clients that hung up: of those that die, the node hears at once; of those that live on, nothing is kept."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys

import pytest

from ringlog.net.departed import WATCH_US, Departed


@pytest.fixture
def departed():
    made = Departed()
    yield made
    made.close()


@pytest.fixture
def process():
    """One that lives until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as made:
        yield made
        made.kill()


def readable(departed: Departed, timeout_s: float) -> bool:
    return bool(select.select([departed.fd], [], [], timeout_s)[0])


def no_descriptors(pid: int) -> int:
    raise OSError(errno.ENOSYS, "as on an old kernel")


def test_a_death_wakes_whoever_waits_and_names_every_session_of_the_process(departed, process):
    departed.add(session=7, pid=process.pid, now_us=0)
    departed.add(session=8, pid=process.pid, now_us=5)
    assert not readable(departed, 0) and departed.dead(now_us=10) == []
    process.kill()  # and not buried
    assert readable(departed, 10)
    assert departed.dead(now_us=20) == [7, 8]
    assert not departed.is_watching and not readable(departed, 0)


def test_one_that_was_buried_before_anybody_looked_is_dead(departed, process):
    process.kill()
    process.wait()
    departed.add(session=7, pid=process.pid, now_us=0)
    assert departed.dead(now_us=0) == [7]


def test_one_that_lives_on_is_forgotten_with_its_descriptor(departed):
    before = len(os.listdir("/proc/self/fd"))
    departed.add(session=7, pid=os.getpid(), now_us=0)
    departed.add(session=8, pid=os.getpid(), now_us=1_000)
    assert departed.dead(now_us=WATCH_US) == [] and departed.is_watching, "the second left later"
    assert departed.dead(now_us=WATCH_US + 1_000) == [] and not departed.is_watching
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_descriptors_of_processes_each_look_reads_what_the_kernel_shows(process):
    departed = Departed(open_process=no_descriptors)
    departed.add(session=7, pid=process.pid, now_us=0)
    assert departed.dead(now_us=0) == [] and departed.is_watching
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert departed.dead(now_us=1) == [7] and not departed.is_watching
    departed.close()
