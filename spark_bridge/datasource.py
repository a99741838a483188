"""The format "ringlog" as Spark knows it: what reads and what writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from spark_bridge.options import source_options
from spark_bridge.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RinglogDataSource(DataSource):
    """Made by Spark, on the driver, for each query. Modules that only one side needs are imported there."""

    @classmethod
    def name(cls) -> str:
        return "ringlog"

    def schema(self) -> str:
        return spark_schema(source_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_bridge.batch_reader import BatchReader

        return BatchReader(source_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark_bridge.stream_reader import StreamReader

        return StreamReader(source_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark_bridge.sink import batch_writer

        return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from spark_bridge.sink import stream_writer

        return stream_writer(schema, self.options, overwrite)
