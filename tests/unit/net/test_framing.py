"""Frames: a header says what is there, and any bytes give a header or a typed error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import CorruptFrame, UnsupportedVersion
from ringlog.net.framing import CONTROLLER_APIS, HEADER_BYTES, SHARD_APIS, Api, pack_header, unpack_header
from ringlog.ring.frame import frame_header
from ringlog.shard.commands import NodeApi

u16, u32, u64 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@given(st.integers(0, 255), u64, u32, u16, u64, u32, st.binary(max_size=20))
def test_a_header_survives_its_packing(api, correlation, partition, flags, received, deadline_ms, body):
    packed = pack_header(
        api,
        correlation=correlation,
        body_bytes=len(body),
        partition=partition,
        flags=flags,
        received=received,
        deadline_ms=deadline_ms,
    )
    assert unpack_header(packed + body) == (
        1, api, flags, partition, correlation, received, deadline_ms, len(body),
    )  # fmt: skip


@given(st.binary(max_size=80))
def test_any_bytes_give_a_header_or_a_typed_error(data):
    try:
        header = unpack_header(data)
    except (CorruptFrame, UnsupportedVersion):
        return
    assert header.body_bytes == len(data) - HEADER_BYTES


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_length_that_does_not_fit_the_frame_is_refused(extra):
    with pytest.raises(CorruptFrame, match="body_bytes"):
        unpack_header(pack_header(3, correlation=1, body_bytes=5 + extra) + b"12345")


def test_another_version_is_refused_by_its_number():
    frame = bytearray(pack_header(3, correlation=1, body_bytes=0))
    frame[0] = 9
    with pytest.raises(UnsupportedVersion, match="9"):
        unpack_header(bytes(frame))


def test_a_frame_goes_into_a_ring_as_it_came():
    wire = pack_header(5, correlation=7, body_bytes=9, partition=3, flags=2, received=11, deadline_ms=13)
    ring = frame_header(
        api_key=5, partition=3, correlation=7, body_bytes=9, session=11, flags=2, deadline_ms=13
    )
    assert wire == ring


def test_every_api_is_answered_by_exactly_one_kind_of_process():
    assert set(Api) == SHARD_APIS | CONTROLLER_APIS | {Api.METADATA, Api.SHARE_MEMORY}
    assert not SHARD_APIS & CONTROLLER_APIS


def test_apis_between_processes_are_none_of_the_clients():
    assert not set(map(int, Api)) & set(map(int, NodeApi))
