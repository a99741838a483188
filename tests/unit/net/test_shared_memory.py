"""Memory of another process is mapped only if it cannot change its size; whatever else a descriptor is, is refused."""

from __future__ import annotations

import fcntl
import mmap
import os
import subprocess
import sys

import pytest

from ringlog.errors import InvalidRequest, LimitExceeded
from ringlog.limits import NEAR_MEMORY_BYTES_MAX
from ringlog.net.shared_memory import make_shared, map_shared

ME = os.getpid()
NBYTES = 8192


@pytest.fixture
def descriptor():
    made = make_shared("test", NBYTES)
    yield made
    os.close(made)


def test_what_a_process_writes_another_one_reads(descriptor):
    mine = mmap.mmap(descriptor, NBYTES)
    mine[4096:4099] = b"abc"
    script = f"""
from ringlog.net.shared_memory import map_shared
print(bytes(map_shared({ME}, {descriptor}, {NBYTES})[4096:4099]))
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert said.stdout.strip() == "b'abc'", said.stderr


def test_it_can_be_read_only_and_never_shrinks(descriptor):
    assert map_shared(ME, descriptor, NBYTES).readonly
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)


def test_the_mapping_outlives_the_descriptor():
    made = make_shared("test", NBYTES)
    view = map_shared(ME, made, NBYTES)
    os.close(made)
    assert bytes(view) == bytes(NBYTES)


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_GROW, fcntl.F_SEAL_SHRINK])
def test_memory_that_could_shrink_is_refused(seals):
    made = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(made, NBYTES)
    fcntl.fcntl(made, fcntl.F_ADD_SEALS, seals)
    with pytest.raises(InvalidRequest, match="sealed"):
        map_shared(ME, made, NBYTES)
    os.close(made)


def test_a_file_is_refused_and_not_opened(tmp_path, monkeypatch):
    with open(tmp_path / "file", "wb") as file:
        file.truncate(NBYTES)
        monkeypatch.setattr(os, "open", None)
        with pytest.raises(InvalidRequest, match="no memory"):
            map_shared(ME, file.fileno(), NBYTES)


def test_a_pipe_that_nobody_writes_to_is_refused_and_not_waited_for():
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(InvalidRequest, match="no memory"):
        map_shared(ME, reader, NBYTES)
    os.close(reader)


def test_what_is_not_there_is_refused(descriptor):
    for process, number, nbytes in (
        (ME, 1_000_000, NBYTES),
        (2**22 + 1, descriptor, NBYTES),
        (ME, descriptor, NBYTES + 4096),
        (ME, descriptor, 0),
        (ME, descriptor, -1),
    ):
        with pytest.raises(InvalidRequest):
            map_shared(process, number, nbytes)
    with pytest.raises(LimitExceeded):
        map_shared(ME, descriptor, NEAR_MEMORY_BYTES_MAX + 1)


def test_memory_that_may_be_written_is_the_same_on_both_sides(descriptor):
    mine = mmap.mmap(descriptor, NBYTES)
    map_shared(ME, descriptor, NBYTES, writable=True)[4096:4099] = b"abc"
    assert mine[4096:4099] == b"abc"


def test_memory_that_is_sealed_against_writing_is_not_mapped_to_be_written():
    made = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(made, NBYTES)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
    fcntl.fcntl(made, fcntl.F_ADD_SEALS, seals)
    assert map_shared(ME, made, NBYTES).readonly
    with pytest.raises(InvalidRequest):
        map_shared(ME, made, NBYTES, writable=True)
    os.close(made)
