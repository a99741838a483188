"""The bridge without its socket: what it keeps, who waits, what fits a credit."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import CorruptFrame, Overloaded
from ringlog.limits import BRIDGE_ASKS_MAX, BRIDGE_ASKS_PER_CLIENT_MAX
from ringlog.model import TopicPartition
from spark_bridge.bridge_cache import HotRanges, Piece, Wanted
from spark_bridge.bridge_desk import Ask, Desk, Place
from spark_bridge.bridge_pieces import answer, fitting
from spark_bridge.bridge_wire import ReadRequest, default_bridge, pack_reply_head, unpack_reply

ORDERS = Wanted(TopicPartition("orders", 0), ("offset", "value"))


def piece(start, count, size=100):
    return Piece(start, start + count, count * size, f"{start}")


def batch(offsets, size=10):
    return pa.record_batch({"offset": pa.array(offsets, pa.int64()), "value": [bytes(size)] * len(offsets)})


def ask(client=b"one", correlation=1, start=0, end=100, credit=1 << 20):
    return Ask(client, correlation, ReadRequest("orders", 0, start, end, ["offset", "value"], credit))


def test_what_is_hot_is_found_by_any_offset_in_it():
    hot = HotRanges(10_000)
    hot.put(ORDERS, piece(0, 10))
    hot.put(ORDERS, piece(10, 10))
    assert [hot.find(ORDERS, at).start for at in (0, 9, 10, 19)] == [0, 0, 10, 10]
    assert hot.find(ORDERS, 20) is None
    assert hot.find(Wanted(ORDERS.tp, ("offset",)), 5) is None, "other columns are another thing"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=60))
def test_what_is_hot_never_takes_more_than_its_bound(puts):
    hot = HotRanges(3000)
    for start, count in puts:
        hot.put(ORDERS, piece(start, count))
        found = hot.find(ORDERS, start)
        assert hot.nbytes <= 3000
        assert found is not None
        assert found.start <= start < found.next_offset
    assert hot.nbytes == sum(one.nbytes for one in hot._pieces.values())


def test_what_was_used_last_stays():
    hot = HotRanges(2500)
    hot.put(ORDERS, piece(0, 10))
    hot.put(ORDERS, piece(10, 10))
    assert hot.find(ORDERS, 0) is not None
    hot.put(ORDERS, piece(20, 10))
    assert hot.find(ORDERS, 0) is not None
    assert hot.find(ORDERS, 10) is None


def test_a_piece_larger_than_the_bound_is_not_kept():
    hot = HotRanges(500)
    hot.put(ORDERS, piece(0, 10))
    assert (len(hot), hot.nbytes) == (0, 0)


def test_a_place_is_fetched_once_for_all_who_ask():
    desk, place = Desk(), Place(ORDERS, 0)
    assert desk.wait(place, ask(b"one"))
    assert not desk.wait(place, ask(b"two"))
    assert [one.client for one in desk.arrived(place)] == [b"one", b"two"]
    assert len(desk) == 0
    assert desk.wait(place, ask(b"one")), "what was answered is fetched again when it is asked for again"


def test_who_left_is_not_answered():
    desk, place = Desk(), Place(ORDERS, 0)
    desk.wait(place, ask(b"one"))
    desk.wait(place, ask(b"two"))
    desk.left(b"one")
    assert [one.client for one in desk.arrived(place)] == [b"two"]


def test_a_client_may_not_ask_without_end():
    desk = Desk()
    for n in range(BRIDGE_ASKS_PER_CLIENT_MAX):
        desk.wait(Place(ORDERS, n), ask())
    with pytest.raises(Overloaded):
        desk.wait(Place(ORDERS, 1000), ask())
    desk.arrived(Place(ORDERS, 0))
    assert desk.wait(Place(ORDERS, 1000), ask())


def test_all_clients_together_may_not_ask_without_end():
    desk = Desk()
    for n in range(BRIDGE_ASKS_MAX):
        desk.wait(Place(ORDERS, n), ask(b"%d" % n))
    with pytest.raises(Overloaded) as refused:
        desk.wait(Place(ORDERS, 0), ask(b"one more"))
    assert refused.value.retriable
    desk.left(b"7")
    assert not desk.wait(Place(ORDERS, 0), ask(b"one more")), "who left made room"


def test_a_place_that_nobody_waits_for_any_more_can_be_asked_for_anew():
    desk, place = Desk(), Place(ORDERS, 0)
    desk.wait(place, ask(b"one"))
    assert desk.is_wanted(place)
    desk.left(b"one")
    assert not desk.is_wanted(place)
    assert desk.wait(place, ask(b"two")), "it is fetched again"


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=50), st.integers(1, 20_000))
def test_an_answer_fits_its_credit_or_is_one_record(sizes, credit):
    rows = pa.record_batch({"value": [bytes(size) for size in sizes]})
    fit = fitting(rows, credit)
    assert fit.num_rows >= 1
    assert fit.nbytes <= credit or fit.num_rows == 1
    assert fit.equals(rows.slice(0, fit.num_rows))


def test_answers_join_up_to_the_range():
    whole = Piece(0, 100, 0, batch(list(range(0, 100, 3)), size=50))
    got, at = [], 10
    while at < 80:
        rows, at = answer(whole, ask(start=at, end=80, credit=300).request)
        assert rows.nbytes <= 300
        got += rows.column("offset").to_pylist()
    assert got == [n for n in range(0, 100, 3) if 10 <= n < 80]
    assert at == 100


def test_a_piece_without_records_in_the_range_says_where_to_go_on():
    rows, behind = answer(Piece(0, 100, 0, batch([1, 2])), ask(start=50).request)
    assert (rows.num_rows, behind) == (0, 100)


@pytest.mark.parametrize("body", [b"", bytes(15), pack_reply_head(5, 3) + b"four", pack_reply_head(5, 3)])
def test_a_reply_whose_lengths_do_not_fit_is_refused(body):
    with pytest.raises(CorruptFrame):
        unpack_reply(memoryview(body))


def test_a_bridge_is_looked_for_beside_its_node():
    assert default_bridge("ipc:///run/x, 10.0.0.1:9400") == "10.0.0.1:9500"
    assert default_bridge("ipc:///run/x") is None
    assert default_bridge("127.0.0.1:65500") is None
