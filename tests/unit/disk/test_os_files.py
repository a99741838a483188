"""Files of a real file system: where the page cache cannot be bypassed, and what make_dir makes durable."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from ringlog.disk import os_files
from ringlog.disk.memory import aligned
from ringlog.disk.plain import PlainDisk
from ringlog.disk.uring import UringDisk
from ringlog.limits import BLOCK_BYTES


@pytest.fixture(params=[UringDisk, PlainDisk])
def disk(request):
    engine = request.param()
    yield engine
    engine.shutdown()


@pytest.fixture
def no_direct(monkeypatch):
    """A file system that refuses O_DIRECT."""
    real_open = os.open

    def refuse(path, flags, *rest):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument", path)
        return real_open(path, flags, *rest)

    monkeypatch.setattr(os_files.os, "open", refuse)


def test_a_refused_direct_open_falls_back_to_the_page_cache_and_still_serves(disk, tmp_path, no_direct):
    file = disk.open(str(tmp_path / "log"), write=True, create=True, direct=True)
    assert not file.is_direct
    memory = aligned(BLOCK_BYTES)
    memory[:3] = b"abc"
    assert disk.wait(disk.write(file, [memory], 0, durable=True)) == BLOCK_BYTES
    assert (tmp_path / "log").read_bytes()[:3] == b"abc"


def test_the_fallback_is_told_once_for_each_directory(disk, tmp_path, no_direct, caplog):
    with caplog.at_level(logging.WARNING):
        for directory in ("a", "b"):
            disk.make_dir(str(tmp_path / directory))
            for name in ("1", "2"):
                disk.open(str(tmp_path / directory / name), write=True, create=True, direct=True)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert str(tmp_path / "a") in told[0]
    assert str(tmp_path / "b") in told[1]
    assert "O_DIRECT" in told[0]


def test_direct_files_bypass_the_page_cache_where_they_can(disk, tmp_path):
    file = disk.open(str(tmp_path / "log"), write=True, create=True, direct=True)
    if not file.is_direct:
        pytest.fail(
            "the file system of the temporary directory refuses O_DIRECT: set TMPDIR to one on a disk"
        )
    assert disk.wait(disk.write(file, [aligned(BLOCK_BYTES)], 0, durable=True)) == BLOCK_BYTES
    misaligned = aligned(BLOCK_BYTES)[1:]
    assert disk.wait(disk.write(file, [misaligned], 0, durable=True)) == -errno.EINVAL


def test_another_error_of_a_direct_open_is_raised(disk, tmp_path):
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "missing"), direct=True)


def test_make_dir_flushes_the_parent_of_every_directory_that_it_makes(disk, tmp_path, monkeypatch):
    flushed = []
    real_fsync = os.fsync

    def fsync(fd):
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        real_fsync(fd)

    monkeypatch.setattr(os_files.os, "fsync", fsync)
    disk.make_dir(str(tmp_path / "a" / "b"))
    assert flushed == [str(tmp_path), str(tmp_path / "a")]
    disk.make_dir(str(tmp_path / "a" / "b"))
    assert len(flushed) == 2


def test_files_are_not_for_everybody(disk, tmp_path):
    disk.make_dir(str(tmp_path / "a"))
    disk.open(str(tmp_path / "a" / "log"), write=True, create=True)
    assert os.stat(tmp_path / "a" / "log").st_mode & 0o007 == 0
    assert os.stat(tmp_path / "a").st_mode & 0o007 == 0


def test_files_are_not_inherited_by_children(disk, tmp_path):
    file = disk.open(str(tmp_path / "log"), write=True, create=True)
    assert not os.get_inheritable(file.fd)
