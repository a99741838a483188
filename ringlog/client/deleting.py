"""Asks a node to delete the oldest records of partitions, and waits until that is durable."""

from __future__ import annotations

from collections.abc import Mapping

from ringlog.client.connection import Connection
from ringlog.client.rounds import ask_partitions
from ringlog.errors import OffsetOutOfRange
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import DeleteRecordsReply, DeleteRecordsRequest, PartitionStart


def delete_records(
    connection: Connection, starts: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, int]:
    """Let the logs of partitions begin at these offsets; returns where they begin now."""
    try:
        rows = ask_partitions(
            connection,
            starts,
            Api.DELETE_RECORDS,
            lambda some: DeleteRecordsRequest([PartitionStart(*one) for one in some]),
            DeleteRecordsReply,
            lambda reply: reply.deleted,
            failed="its old records were not deleted",
            timeout_s=timeout_s,
        )
    except OffsetOutOfRange as refused:
        raise OffsetOutOfRange(f"{refused}: the offset lies beyond the end of the log") from None
    return {tp: row.log_start_offset for tp, row in rows.items()}
