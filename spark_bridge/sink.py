"""The sink: DataFrames into topics. Each task sends Arrow columns with an idempotent producer of its own, and tells the
driver that it is done only when the node has acknowledged every record.

A streaming epoch that was committed before adds nothing when Spark runs it again; `epochs` tells how that is known.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ringlog.errors import InvariantBroken
from ringlog.model import TopicPartition
from spark_bridge import epochs
from spark_bridge.sink_options import SinkOptions, check_schema, sink_options
from spark_bridge.sink_task import send_all

_log = logging.getLogger("spark_bridge.sink")

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class TaskDone(WriterCommitMessage):
    """A task's records are flushed, or were found to be in the log already."""

    records: int
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """Behind the last record of each partition that was written to."""
    query_id: str | None = None
    """Of a streaming query."""
    skipped: bool = False


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("ringlog")`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskDone:
        records, ends = send_all(iterator, self._options)
        return TaskDone(records, ends)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("ringlog")`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskDone:
        """On an executor: send, unless this epoch is in the log."""
        epoch = _epoch_of_task()
        if epochs.is_committed(epoch, self._options.bootstrap, self._options.delivery_timeout_s):
            # Read to its end all the same: operators before us finish their state only then.
            records = sum(batch.num_rows for batch in iterator)
            return TaskDone(records, query_id=epoch.query_id, skipped=True)
        records, ends = send_all(iterator, self._options)
        return TaskDone(records, ends, epoch.query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when all tasks are done: remember the epoch before Spark does."""
        done = [message for message in messages if isinstance(message, TaskDone)]
        query_id = next((message.query_id for message in done if message.query_id), None)
        if query_id is None:
            return  # no task ran: there is nothing to remember
        epoch = epochs.Epoch(query_id, batchId)
        records = sum(message.records for message in done)
        if all(message.skipped for message in done):
            epochs.check_replay(epoch, records, self._options.bootstrap, self._options.delivery_timeout_s)
            _log.warning(
                "epoch %d of query %s is in the log: %d records not added again", batchId, query_id, records
            )
            return
        ends = epochs.ends_of(message.ends for message in done)
        epochs.commit(epoch, records, ends, self._options.bootstrap, self._options.delivery_timeout_s)


def batch_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> BatchWriter:
    """The writer of a batch query; InvalidRequest says what is wrong with its options or columns."""
    checked = sink_options(options)
    check_schema(schema, checked, overwrite=overwrite)
    return BatchWriter(checked)


def stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> StreamWriter:
    """The writer of a streaming query; InvalidRequest says what is wrong with its options or columns."""
    checked = sink_options(options)
    check_schema(schema, checked, overwrite=overwrite)
    return StreamWriter(checked)


def _epoch_of_task() -> epochs.Epoch:
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
    number = None if context is None else context.getLocalProperty(_BATCH_ID)
    if not query_id or not number:
        raise InvariantBroken("a streaming task is told its query and its batch by Spark")
    return epochs.Epoch(query_id, int(number))
