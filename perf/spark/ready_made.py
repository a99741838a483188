"""What Spark can do at best: a source that yields Arrow batches it has at hand, and a sink that drops its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource


def ready_made(template: Any, schema: Any, batches: int, tasks: int) -> type[DataSource]:
    """A data source `ready-made` of some tasks, each of which yields the same record batch some times.

    Classes of a function's own travel to the workers whole: these need not be able to import this module.
    """

    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class ReadyMadeReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(tasks)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            for _ in range(batches):
                yield template

    class ReadyMade(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready-made"

        def schema(self) -> Any:
            return schema

        def reader(self, schema: Any) -> DataSourceReader:
            return ReadyMadeReader()

    return ReadyMade


def dropping() -> type[DataSource]:
    """A data source `dropping` that can be written to: each task reads its Arrow batches, and forgets them."""

    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    class DroppingWriter(DataSourceArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            for _ in iterator:
                continue
            return WriterCommitMessage()

    class Dropping(DataSource):
        @classmethod
        def name(cls) -> str:
            return "dropping"

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
            return DroppingWriter()

    return Dropping
