"""Asks a node for offsets of partitions: the ends of their logs, or the first record after a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringlog.client.connection import Connection
from ringlog.client.rounds import ask_partitions
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import ListOffsetsReply, ListOffsetsRequest, OffsetQuery


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
