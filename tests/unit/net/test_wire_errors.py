"""Errors on the wire: what was raised on one side is raised on the other."""

from __future__ import annotations

import pytest

from ringlog import errors
from ringlog.errors import CorruptInput, RinglogError
from ringlog.net.messages import ErrorReply, decode_body, encode_body
from ringlog.net.wire_errors import NUMBERS, error_by_number, error_reply, number_of, raised

STAY_AT_HOME = {
    # of files and rings, which no client sees; or made by the client, the CLI or the supervisor itself
    "CORRUPT_INPUT", "CORRUPT_FILE", "DISK_ENGINE_UNAVAILABLE", "RING_FULL", "RING_CORRUPT", "RING_STALE",
    "RING_TAKEN", "RING_CLOSED", "NODE_UNAVAILABLE", "DELIVERY_TIMEOUT", "BUFFER_FULL", "CLIENT_CLOSED",
    "NODE_RUNNING", "NODE_FAILED", "CLUSTER_MISMATCH", "DATA_LOSS", "EPOCH_MISMATCH", "BAD_VALUE",
}  # fmt: skip
ALL = {
    kind.code: kind
    for kind in vars(errors).values()
    # A kind without a code of its own is made by the client, of one that came.
    if isinstance(kind, type) and issubclass(kind, RinglogError) and "code" in vars(kind)
}


def made(kind: type[RinglogError]) -> RinglogError:
    return kind("field", 3, "reason") if issubclass(kind, CorruptInput) else kind("what to do")


@pytest.mark.parametrize("code", sorted(ALL.keys() - STAY_AT_HOME))
def test_every_error_that_can_cross_the_wire_has_a_number(code):
    assert code in NUMBERS


@pytest.mark.parametrize("code", sorted(NUMBERS))
def test_an_error_survives_the_wire(code):
    sent = made(ALL[code])
    got = raised(decode_body(encode_body(error_reply(sent)), ErrorReply))
    assert (type(got), str(got), got.retriable) == (type(sent), str(sent), sent.retriable)


@pytest.mark.parametrize("code", sorted(NUMBERS))
def test_a_number_stands_for_its_error(code):
    got = error_by_number(number_of(made(ALL[code])), "message")
    assert (type(got), str(got)) == (ALL[code], "message")


def test_numbers_never_change():
    first = ["INTERNAL", "INVARIANT_BROKEN", "INVALID_REQUEST", "CORRUPT_BATCH", "CORRUPT_SEGMENT"]
    assert [NUMBERS[code] for code in first] == [1, 2, 3, 4, 5]
    assert (NUMBERS["OFFSET_OUT_OF_RANGE"], NUMBERS["STALE_METADATA"], NUMBERS["CORRUPT_FRAME"]) == (
        7,
        15,
        23,
    )


@pytest.mark.parametrize("number", [0, -1, 9999])
def test_a_number_of_a_newer_peer_is_an_internal_error(number):
    assert type(error_by_number(number, "x")) is RinglogError


@pytest.mark.parametrize("retriable", [True, False])
def test_an_error_of_a_newer_peer_keeps_its_own_word_on_retries(retriable):
    got = raised(ErrorReply("OF_TOMORROW", "wait", retriable))
    assert (got.code, got.retriable, str(got)) == ("OF_TOMORROW", retriable, "wait")
