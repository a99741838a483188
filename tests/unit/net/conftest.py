"""A network process without its socket, for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.net_world import NetWorld


@pytest.fixture
def world() -> Iterator[NetWorld]:
    world = NetWorld()
    yield world
    world.close()
