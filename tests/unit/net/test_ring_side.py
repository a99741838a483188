"""The rings of a network process: those with something are taken from, and what waits for room goes out."""

from __future__ import annotations

import pytest

from ringlog.limits import KIB
from ringlog.net.ring_side import RingSide
from ringlog.ring.board import LinkChange
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.link import LinkEnd, create_link

RING = 4 * KIB


class FakeLinks:
    """Links that a test makes anew."""

    def __init__(self) -> None:
        self.ends: dict[int, LinkEnd] = {}
        self.changes: list[LinkChange] = []

    def refresh(self) -> list[LinkChange]:
        changes, self.changes = self.changes, []
        return changes


class World:
    """A RingSide; it is the service, too, and the test is at the other ends."""

    def __init__(self) -> None:
        self.bell = Doorbell.create()
        self.links = FakeLinks()
        self.backs: dict[int, LinkEnd] = {}
        self.taken: list[tuple[int, bytes]] = []
        self.connected: list[int] = []
        self.side = RingSide(self.links, self, lambda process: None)
        self._open: list[LinkEnd] = []

    def take_frames(self, process, end, messages):
        self.taken += [(process, bytes(message.body)) for message in messages]
        end.reader.release()

    def connect(self, process, end, region):
        self.connected.append(process)

    def link(self, process: int, generation: int = 1) -> None:
        memory = create_link("unit", request_bytes=RING, reply_bytes=RING, generation=generation)
        front, self.backs[process] = (
            LinkEnd(memory.name, generation, side, request_bytes=RING, peer_bell=self.bell)
            for side in ("front", "back")
        )
        memory.unlink()
        memory.close()
        self._open += [front, self.backs[process]]
        self.links.changes.append(LinkChange(process, self.links.ends.get(process), front))
        self.links.ends[process] = front

    def close(self) -> None:
        for end in self._open:
            if not end.closed:
                end.close()
        self.bell.close()


@pytest.fixture
def world():
    made = World()
    yield made
    made.close()


def test_only_rings_with_something_are_handed_over(world):
    world.link(2)
    world.link(3)
    world.side.follow_links()
    assert not world.side.take_frames() and world.taken == []
    world.backs[3].send(b"news")
    assert world.side.take_frames()
    assert world.taken == [(3, b"news")] and world.backs[3].writer.used_bytes() == 0


def test_after_a_death_the_last_words_are_taken_and_then_the_new_ring(world):
    world.link(2)
    world.side.follow_links()
    world.backs[2].send(b"last words")
    world.link(2, generation=2)
    world.backs[2].send(b"first words")
    world.side.follow_links()
    assert world.taken == [(2, b"last words")] and world.connected == [2, 2]
    assert world.side.take_frames() and world.taken[1:] == [(2, b"first words")]


def test_what_waits_for_room_goes_out_when_there_is_some(world):
    world.link(2)
    world.link(3)
    world.side.follow_links()
    assert world.side.pump()
    for _ in range(8):
        world.links.ends[2].send(bytes(KIB - 64))
    assert not world.side.pump()
    reader, found = world.backs[2].reader, 0
    while found < 8:
        found += len(reader.read_all())
        reader.release()
        world.side.pump()
    assert world.side.pump() and world.links.ends[2].outbox_bytes == 0
