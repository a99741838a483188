"""What a task does: the batches of its range become the rows of its query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_bridge.direct import read_direct
from spark_bridge.options import SourceOptions
from spark_bridge.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType


def read_rows(options: SourceOptions, schema: StructType, part: OffsetRange) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a range, in order."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from spark_bridge.arrow_rows import RowMaker

    maker = RowMaker(part.tp, to_arrow_schema(schema, timezone="UTC"))
    for found in read_direct(options.bootstrap, part, fail_on_data_loss=options.fail_on_data_loss):
        rows = maker.rows(found.data, part.start, part.end)
        if rows.num_rows:
            yield rows
