"""The plain engine's own promises: which system call each call becomes, and when."""

from __future__ import annotations

import errno
import os

import pytest

from ringlog.disk import plain
from ringlog.disk.plain import PlainDisk


@pytest.fixture
def disk():
    engine = PlainDisk()
    yield engine
    engine.shutdown()


@pytest.fixture
def file(disk, tmp_path):
    return disk.open(str(tmp_path / "log"), write=True, create=True)


@pytest.fixture
def system_calls(monkeypatch):
    """The names and last arguments of the system calls that the engine makes."""
    made = []

    def noting(name):
        real = getattr(os, name)

        def call(*arguments):
            made.append((name, arguments[-1]))
            return real(*arguments)

        monkeypatch.setattr(plain.os, name, call)

    for name in ("pwritev", "fdatasync", "fsync", "posix_fallocate", "preadv"):
        noting(name)
    return made


def test_a_durable_write_is_one_synchronous_system_call(disk, file, system_calls):
    disk.wait(disk.write(file, [memoryview(b"abc")], 0, durable=True))
    disk.wait(disk.write(file, [memoryview(b"abc")], 0, durable=False))
    assert system_calls == [("pwritev", os.RWF_DSYNC), ("pwritev", 0)]


def test_flushes_reach_the_file_and_the_directory(disk, file, tmp_path, system_calls):
    disk.wait(disk.flush(file))
    disk.wait(disk.flush_dir(str(tmp_path)))
    assert [name for name, _ in system_calls] == ["fdatasync", "fsync"]
    assert system_calls[0] == ("fdatasync", file.fd)


def test_calls_are_made_in_order_at_submit(disk, file, system_calls):
    disk.write(file, [memoryview(b"abc")], 0, durable=False)
    disk.flush(file)
    disk.preallocate(file, 0, 4096)
    assert system_calls == []
    disk.submit()
    assert [name for name, _ in system_calls] == ["pwritev", "fdatasync", "posix_fallocate"]
    assert disk.in_flight == 3


def test_closing_a_file_makes_its_calls_before_its_number_goes_to_another(disk, file, tmp_path):
    token = disk.write(file, [memoryview(b"first")], 0, durable=False)
    disk.close(file)
    other = disk.open(str(tmp_path / "other"), write=True, create=True)
    assert disk.wait(token) == 5
    assert disk.size(other) == 0


def test_directory_descriptors_are_closed_with_their_flush(disk, tmp_path, monkeypatch):
    before = len(os.listdir("/proc/self/fd"))
    assert disk.wait(disk.flush_dir(str(tmp_path))) == 0

    def fail(fd):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(plain.os, "fsync", fail)
    assert disk.wait(disk.flush_dir(str(tmp_path))) == -errno.EIO
    assert len(os.listdir("/proc/self/fd")) == before
