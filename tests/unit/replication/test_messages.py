"""What replicas say to each other survives the wire, and bad bytes are refused."""

from __future__ import annotations

import pytest

from ringlog.errors import CorruptFrame
from ringlog.replication.messages import (
    Part,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaHeld,
    Want,
    decode_fetch,
    decode_fetched,
    decode_held,
    encode_ask,
    encode_fetched,
)

WANT = Want(7, 5, 100, 4, 90, 1000)
FETCHED = ReplicaFetched(1, 2, False, [Part(7, 0, 5, 100, 90, 0, 3), Part(8, 0, 5, 1, 1, 0, 0, 4, 50)])


def test_everything_comes_back_as_it_was():
    fetch = ReplicaFetch(2, 200, 0, 1, 3, 500, 1000, [WANT], [9])
    assert decode_fetch(encode_ask(fetch), fetch.node) == fetch
    held = ReplicaHeld(2, 200, [WANT])
    assert decode_held(encode_ask(held), held.node) == held
    body = encode_fetched(FETCHED) + b"abc"
    assert decode_fetched(body) == (FETCHED, len(body) - 3)


@pytest.mark.parametrize("cut", range(len(encode_fetched(FETCHED)) + 3))
def test_an_answer_that_is_cut_anywhere_is_refused(cut):
    with pytest.raises(CorruptFrame):
        decode_fetched((encode_fetched(FETCHED) + b"abc")[:cut])


def test_parts_that_claim_other_bytes_than_there_are_are_refused():
    with pytest.raises(CorruptFrame):
        decode_fetched(encode_fetched(FETCHED) + b"abcd")
    negative = ReplicaFetched(1, 2, False, [Part(7, 0, 5, 100, 90, 0, 4), Part(8, 0, 5, 1, 1, 0, -1)])
    with pytest.raises(CorruptFrame):
        decode_fetched(encode_fetched(negative) + b"abc")


@pytest.mark.parametrize("decode", [decode_fetch, decode_held])
def test_bytes_of_something_else_are_refused(decode):
    with pytest.raises(CorruptFrame):
        decode(b"\x93\x01\x02\xc3", 1)


def test_what_a_node_says_in_the_name_of_another_one_is_refused():
    with pytest.raises(CorruptFrame, match="node 3 speaks for node 2"):
        decode_fetch(encode_ask(ReplicaFetch(2, 200, 0, 1, 3, 500, 1000, [WANT], [9])), 3)
    with pytest.raises(CorruptFrame, match="node 3 speaks for node 2"):
        decode_held(encode_ask(ReplicaHeld(2, 200, [WANT])), 3)
