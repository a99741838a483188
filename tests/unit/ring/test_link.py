"""Links: frames go both ways, in order, also those that found no room."""

from __future__ import annotations

import os

import pytest

from ringlog.errors import RingStale
from ringlog.limits import KIB
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.link import LinkEnd, create_link

RING = 4 * KIB


@pytest.fixture
def ends():
    bell = Doorbell.create()
    memory = create_link("unit", request_bytes=RING, reply_bytes=2 * RING, generation=3)
    front, back = (
        LinkEnd(memory.name, 3, side, request_bytes=RING, peer_bell=bell) for side in ("front", "back")
    )
    memory.unlink()
    memory.close()
    yield front, back
    for end in (front, back):
        if not end.closed:
            end.close()
    bell.close()


def read(end: LinkEnd) -> list[bytes]:
    found = [bytes(message.body) for message in end.reader.read_all()]
    end.reader.release()
    return found


def test_frames_go_both_ways(ends):
    front, back = ends
    front.send(b"question")
    back.send(b"answer")
    assert (read(back), read(front)) == ([b"question"], [b"answer"])


def test_frames_that_found_no_room_arrive_in_their_order(ends):
    front, back = ends
    frames = [b"%04d" % number + bytes(400) for number in range(100)]
    for frame in frames[:50]:
        front.send(frame)
    got = read(back)
    for frame in frames[50:]:
        front.send(frame)
    assert front.outbox_bytes > 0
    while not front.pump():
        got += read(back)
    got += read(back)
    assert (got, front.outbox_bytes) == (frames, 0)


def test_a_pump_says_whether_something_still_waits(ends):
    front, back = ends
    for _ in range(20):
        front.send(bytes(400))
    assert front.pump() is False
    while not front.pump():
        read(back)
    assert front.pump() is True


def test_after_a_close_nothing_is_sent(ends):
    front, _ = ends
    front.close()
    front.send(b"late")
    assert front.outbox_bytes == 0


def test_messages_that_were_read_do_not_hinder_a_close(ends):
    front, back = ends
    front.send(b"question")
    messages = back.reader.read_all()
    back.close()
    assert messages[0].kind == 0


def test_a_link_that_was_made_anew_meanwhile_is_not_kept_open():
    memory = create_link("unit", request_bytes=RING, reply_bytes=RING, generation=3)
    with Doorbell.create() as bell:
        before = set(os.listdir("/proc/self/fd"))
        with pytest.raises(RingStale):
            LinkEnd(memory.name, 4, "front", request_bytes=RING, peer_bell=bell)
        assert set(os.listdir("/proc/self/fd")) == before
    memory.unlink()
    memory.close()
