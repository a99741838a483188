"""What a task does: its range is read through the bridge, or from the brokers, and becomes rows of its query."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ringlog.errors import RinglogError
from spark_bridge.bridge_client import read_bridged
from spark_bridge.direct import read_direct
from spark_bridge.gap_notes import TaskNotes
from spark_bridge.gaps import GapPolicy
from spark_bridge.options import SourceOptions
from spark_bridge.ranges import OffsetRange
from spark_bridge.route import Route

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


class Task(NamedTuple):
    """What the driver sends to a task."""

    part: OffsetRange
    route: Route
    read_id: str
    """Of the query or batch read that it belongs to: where it notes what it had to skip."""


def read_rows(options: SourceOptions, schema: StructType, task: Task) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a range, in order."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from spark_bridge.arrow_rows import RowMaker, decoded_columns, within

    part = task.part
    maker = RowMaker(part.tp, to_arrow_schema(schema, timezone="UTC"), options.value_format, options.mode)
    for made, start in _decoded(options, task, decoded_columns(options.columns)):
        rows = within(made, start, part.end)
        if rows.num_rows:
            yield maker.rows(rows)


def _decoded(
    options: SourceOptions, task: Task, columns: tuple[str, ...]
) -> Iterator[tuple[pyarrow.RecordBatch, int]]:
    """Decoded batches, and the offset from which on their records are new."""
    from spark_bridge.arrow_rows import decoded

    part, route, read_id = task
    if route.bridge is not None:
        try:
            for made, behind in read_bridged(route.bridge, part, columns):
                start, part = part.start, part._replace(start=behind)
                yield made, start
        except RinglogError as error:
            log.warning("%s: the bridge does not serve it (%s): it is read from the brokers", part, error)
    if part.offsets:
        gaps = GapPolicy(options.fail_on_data_loss, TaskNotes(options, read_id, task.part).tell)
        for found in read_direct(options.bootstrap, part, gaps, options.patience_s):
            yield decoded(found.data, columns), found.position
