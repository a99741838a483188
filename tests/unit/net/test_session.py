"""Sessions: every request is answered once, whatever happens to replies and connections."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import CorruptFrame
from ringlog.net.framing import HEADER_BYTES, Api, Flag, pack_header, unpack_header
from ringlog.net.near import LANDED, LANDING, Place
from ringlog.net.session import Request, Session


def request(body=b"body", timeout_s=10.0, now_s=0.0, **kwargs):
    made = Request(Api.PRODUCE, body, timeout_s=timeout_s, **kwargs)
    made.deadline_s = now_s + timeout_s
    return made


def send(session, one, now_s=0.0):
    frame = session.start(one, now_s)
    session.sent(one)
    return unpack_header(frame)


def reply_to(header, body=b"answer"):
    return pack_header(header.api_key, correlation=header.correlation, body_bytes=len(body)) + body


def test_a_reply_finds_its_request_in_any_order():
    session = Session()
    first, second = request(), request()
    headers = [send(session, first), send(session, second)]
    assert session.match(reply_to(headers[1]))[0] is second
    found, _, body = session.match(reply_to(headers[0], b"one"))
    assert found is first
    assert bytes(body) == b"one"
    assert len(session) == 0


def test_a_second_reply_is_for_nobody():
    session = Session()
    header = send(session, request())
    assert session.match(reply_to(header)) is not None
    assert session.match(reply_to(header)) is None


def test_what_was_received_is_told_with_the_next_request():
    session = Session()
    header = send(session, request())
    session.match(reply_to(header, b"x" * 100))
    assert send(session, request()).received == HEADER_BYTES + 100


def test_a_lost_connection_fails_what_was_sent_in_order_and_begins_a_new_credit():
    session = Session()
    sent = [request() for _ in range(3)]
    headers = [send(session, one) for one in sent]
    session.match(reply_to(headers[1]))
    assert session.lost() == [sent[0], sent[2]]
    assert session.received == 0
    assert session.bytes_in_flight == 0
    assert send(session, request()).correlation > headers[2].correlation
    assert session.match(reply_to(headers[0])) is None


def test_a_request_past_its_deadline_is_taken_out_once():
    session = Session()
    late, later = request(timeout_s=1), request(timeout_s=2)
    header = send(session, late)
    send(session, later)
    assert session.next_deadline_s() == 1
    assert session.expired(0.9) == []
    assert session.expired(1.0) == [late]
    assert session.match(reply_to(header)) is None
    assert session.next_deadline_s() == 2


def test_the_deadline_in_the_header_is_what_is_left_of_the_time():
    session = Session()
    header = send(session, request(timeout_s=2, now_s=10), now_s=11.5)
    assert header.deadline_ms == 500


def test_a_full_session_takes_no_more_but_always_one():
    session = Session(requests_max=2, bytes_max=1000)
    huge = request(b"x" * 5000)
    assert session.has_room(huge)
    send(session, request())
    assert not session.has_room(huge)
    assert session.has_room(request())
    send(session, request())
    assert not session.has_room(request())


def test_a_header_goes_into_the_room_in_front_of_a_body():
    session = Session()
    body = bytearray(HEADER_BYTES) + b"batch"
    frame = session.start(request(body, headroom=True), 0.0)
    assert frame is body
    assert unpack_header(frame).body_bytes == 5


def test_a_body_of_several_buffers_is_one_frame():
    session = Session()
    frame = session.start(request([b"one", bytearray(b"two")]), 0.0)
    assert frame[HEADER_BYTES:] == b"onetwo"


def test_a_frame_that_is_none_is_refused():
    with pytest.raises(CorruptFrame):
        Session().match(b"short")


@given(st.lists(st.sampled_from(("send", "reply", "lose", "expire")), max_size=60), st.randoms())
def test_each_request_leaves_the_session_exactly_once(steps, chance):
    session = Session()
    now_s, headers, sent, left = 0.0, [], [], []
    for step in steps:
        now_s += 1
        if step == "send":
            one = request(timeout_s=chance.randint(1, 9), now_s=now_s)
            headers.append(send(session, one, now_s))
            sent.append(one)
        elif step == "reply" and headers:
            match = session.match(reply_to(chance.choice(headers)))
            left += [] if match is None else [match[0]]
        elif step == "lose":
            left += session.lost()
        elif step == "expire":
            left += session.expired(now_s)
    left += session.lost()
    assert sorted(map(id, left)) == sorted(map(id, sent))
    assert session.bytes_in_flight == 0


# -- places for replies --------------------------------------------------------------------------------------


class Room(bytearray):
    """A place that can be asked whether somebody has it."""

    def is_free(self) -> bool:
        try:
            self.append(0)
        except BufferError:
            return False
        self.pop()
        return True


def landing_request(room: Room, **kwargs):
    made = request(body=b"fetch", **kwargs)
    made.landing = Place(memoryview(room), 4096)
    return made


def near_reply(header, nbytes):
    body = LANDED.pack(nbytes)
    flags = Flag.REPLY | Flag.NEAR
    return (
        pack_header(header.api_key, correlation=header.correlation, body_bytes=len(body), flags=flags) + body
    )


def test_a_request_names_its_place_and_the_reply_is_read_there():
    session, room = Session(), Room(100)
    one = landing_request(room)
    frame = session.start(one, 0.0)
    session.sent(one)
    header = unpack_header(frame)
    assert header.flags == Flag.NEAR
    assert frame[HEADER_BYTES:] == LANDING.pack(4096, 100) + b"fetch"
    room[:5] = b"reply"
    found, _, body = session.match(near_reply(header, 5))
    assert (found, bytes(body)) == (one, b"reply")
    assert session.received == HEADER_BYTES + LANDED.size


def test_a_place_is_free_when_its_reply_has_come_and_nobody_reads_it_any_more():
    session, room = Session(), Room(100)
    header = send(session, landing_request(room))
    assert not room.is_free()
    match = session.match(near_reply(header, 5))
    assert not room.is_free()
    del match
    assert room.is_free()


def test_a_place_stays_taken_while_the_node_may_write_there_though_nobody_waits_any_more():
    session, rooms = Session(), [Room(100), Room(100)]
    headers = [send(session, landing_request(room, timeout_s=1.0)) for room in rooms]
    session.recall(lambda one: one.correlation == headers[0].correlation)
    session.expired(2.0)
    assert len(session) == 0 and not any(room.is_free() for room in rooms)
    assert session.match(near_reply(headers[0], 5)) is None
    assert session.match(reply_to(headers[1])) is None
    assert all(room.is_free() for room in rooms)


def test_places_are_let_go_of_with_the_connection():
    session, room = Session(), Room(100)
    send(session, landing_request(room))
    session.lost()
    assert room.is_free()


def test_a_reply_that_cannot_lie_where_it_says_is_corrupt():
    session = Session()
    with pytest.raises(CorruptFrame):
        session.match(near_reply(send(session, request()), 5))
    with pytest.raises(CorruptFrame):
        session.match(near_reply(send(session, landing_request(Room(4))), 5))
    wrong = near_reply(send(session, landing_request(Room(4))), 4)
    with pytest.raises(CorruptFrame):
        session.match(wrong[:28] + bytes([5, 0, 0, 0]) + wrong[32:] + b"x")
