"""A streaming read: offsets are planned on the driver for each micro-batch, ranges read by tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_bridge.cluster import Cluster
from spark_bridge.offsets import from_json, to_json
from spark_bridge.options import SourceOptions
from spark_bridge.ranges import OffsetRange
from spark_bridge.schema import check_schema
from spark_bridge.tasks import read_rows

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType


class StreamReader(DataSourceStreamReader):
    """On the driver it holds a connection; a copy that travels to the tasks never had one."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options
        self._schema = schema
        self._cluster: Cluster | None = None

    def initialOffset(self) -> dict[str, Any]:
        cluster = self._connected()
        return to_json(cluster.starts(cluster.partitions()))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        cluster = self._connected()
        return to_json(from_json(start) | cluster.latest(cluster.partitions()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin = from_json(start)
        ranges = [OffsetRange(*tp, begin.get(tp, 0), at) for tp, at in from_json(end).items()]
        return [InputPartition(part) for part in ranges if part.offsets]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read_rows(self._options, self._schema, partition.value)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster
