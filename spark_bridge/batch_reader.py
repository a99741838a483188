"""A batch read: planned once on the driver, each range read by one task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_bridge.cluster import Cluster
from spark_bridge.options import SourceOptions
from spark_bridge.ranges import OffsetRange
from spark_bridge.schema import check_schema
from spark_bridge.tasks import read_rows

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType


class BatchReader(DataSourceReader):
    """Travels to the tasks: it holds no connection."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        with Cluster(self._options) as cluster:
            tps = cluster.partitions()
            starts, ends = cluster.starts(tps), cluster.ends(tps)
        ranges = [OffsetRange(*tp, starts[tp], ends[tp]) for tp in tps]
        return [InputPartition(part) for part in ranges if part.offsets]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if partition.value is None:
            return iter(())  # what Spark makes when there is nothing to read
        return read_rows(self._options, self._schema, partition.value)
