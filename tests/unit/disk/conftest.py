"""Engines for the tests of the disk interface."""

from __future__ import annotations

import pytest

from ringlog.disk.plain import PlainDisk
from ringlog.disk.uring import UringDisk
from tests.support.fake_disk import FakeDisk


@pytest.fixture(params=["io_uring", "plain", "fake", "fake with delays"])
def disk(request):
    """Each engine in turn."""
    if request.param == "io_uring":
        engine = UringDisk()
    elif request.param == "plain":
        engine = PlainDisk()
    else:
        engine = FakeDisk(seed=7, delays="delays" in request.param)
    yield engine
    engine.shutdown()


@pytest.fixture
def root(disk, tmp_path):
    """A directory on that engine's disk."""
    path = str(tmp_path / "data")
    disk.make_dir(path)
    return path
