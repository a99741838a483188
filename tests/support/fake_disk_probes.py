"""Small steps for tests of the fake disk itself: a disk with a file, a write, what power losses leave."""

from __future__ import annotations

import random

from ringlog.limits import SECTOR_BYTES
from tests.support.fake_disk import FakeDisk

SEEDS = range(60)


def sectors(*values):
    """One sector full of each byte."""
    return b"".join(bytes([value]) * SECTOR_BYTES for value in values)


def view(content):
    return memoryview(bytearray(content))


def made(content=b"", **options):
    """A disk with one durable file, and the file, open."""
    disk = FakeDisk(**options)
    disk.put("/data/log", content)
    return disk, disk.open("/data/log", write=True)


def write(disk, file, content, position=0, *, durable=False):
    assert disk.wait(disk.write(file, [view(content)], position, durable=durable)) == len(content)


def survivors(disk, path="/data/log", **options):
    """The contents that power losses at this moment leave, over many seeds."""
    found = set()
    for seed in SEEDS:
        after = disk.crash(random.Random(seed), **options)
        found.add(after.content(path) if after.exists(path) else None)
    return found


def values_per_sector(contents):
    """For each sector the first bytes that were found in it, having checked that none is mixed inside."""
    length = max(len(content) for content in contents)
    found = [set() for _ in range(0, length, SECTOR_BYTES)]
    for content in contents:
        for number, at in enumerate(range(0, len(content), SECTOR_BYTES)):
            sector = content[at : at + SECTOR_BYTES]
            assert len(set(sector)) == 1
            found[number].add(sector[0])
    return found
