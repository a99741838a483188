"""Asks a node for offsets of partitions: the ends of their logs, or the first record after a time."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, NamedTuple

from ringlog.client.connection import Connection
from ringlog.client.rounds import ask_partitions
from ringlog.errors import InvalidRequest
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import ListOffsetsReply, ListOffsetsRequest, OffsetQuery

NUMBER_MAX = 2**63 - 1
"""Offsets and times have 63 bits in the log and on the wire."""


def checked_offset(given: Any) -> int:
    """An offset that a user named; InvalidRequest when no log could have it.

    >>> checked_offset(-1)
    Traceback (most recent call last):
    ringlog.errors.InvalidRequest: an offset is a number from 0 to 2**63 - 1, and not -1
    """
    if not _is_number(given):
        raise InvalidRequest(f"an offset is a number from 0 to 2**63 - 1, and not {given!r}")
    return int(given)


def checked_time_ms(given: Any) -> int:
    """A time that a user named; InvalidRequest when no record could have it."""
    if not _is_number(given):
        raise InvalidRequest(f"a time is milliseconds since 1970, of 63 bits, and not {given!r}")
    return int(given)


def checked_most(given: Any) -> int | None:
    """How many records a user wants at most; None for 0 and None, which stand for all that is there.

    >>> checked_most(500), checked_most(0)
    (500, None)
    >>> checked_most("500")
    Traceback (most recent call last):
    ringlog.errors.InvalidRequest: max_records must be a whole number from 0 on, or None, and not '500'
    """
    if given is None:
        return None
    if not isinstance(given, Integral) or given < 0:
        raise InvalidRequest(f"max_records must be a whole number from 0 on, or None, and not {given!r}")
    return int(given) or None


def _is_number(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= NUMBER_MAX


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: int


def list_offsets(
    connection: Connection, queries: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """For each partition the answer to EARLIEST, LATEST or a time in milliseconds; None: no record is that young."""
    rows = ask_partitions(
        connection,
        queries,
        Api.LIST_OFFSETS,
        lambda some: ListOffsetsRequest([OffsetQuery(*one) for one in some]),
        ListOffsetsReply,
        lambda reply: reply.found,
        failed="its offsets were not found",
        timeout_s=timeout_s,
    )
    return {
        tp: OffsetAndTimestamp(row.offset, row.timestamp) if row.offset >= 0 else None
        for tp, row in rows.items()
    }
