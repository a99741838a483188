"""What a task does: its range is read through the bridge, or from the brokers, and becomes rows of its query."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ringlog.errors import RinglogError
from spark_bridge.bridge_client import bridge_cluster, read_bridged, unreachable
from spark_bridge.bridge_wire import default_bridge
from spark_bridge.direct import read_direct
from spark_bridge.gap_notes import TaskNotes
from spark_bridge.gaps import GapPolicy
from spark_bridge.options import SourceOptions
from spark_bridge.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

_HOW = ". For one: ringlog start --bridge. To do without, and not be told: option bridge=off"

log = logging.getLogger(__name__)


class Route(NamedTuple):
    """The way to the records, chosen by the driver and sent with each range."""

    bridge: str | None
    """Where a bridge of this cluster answers; None: read the brokers."""

    @classmethod
    def found(cls, options: SourceOptions, before: Route | None = None) -> Route:
        """Look for the bridge that the options name, or for one beside the node; one that was found `before` is good
        as long as it is there. That there is none is said when a query begins and when it loses one, not each time."""
        if before is not None and before.bridge is not None and unreachable(before.bridge) is None:
            return before
        if options.bridge == "off":
            return cls(None)
        address = default_bridge(options.bootstrap) if options.bridge == "auto" else options.bridge
        if address is None:
            return cls(None)
        why = bridge_cluster(address, options.bootstrap)
        if why is None:
            log.info("tasks read through the bridge at %s", address)
            return cls(address)
        known = before is not None and before.bridge is None
        log.log(
            logging.INFO if known else logging.WARNING,
            "no bridge at %s (%s): tasks read the brokers directly%s",
            address,
            why,
            _HOW if options.bridge == "auto" else "",
        )
        return cls(None)


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
    maker = RowMaker(part.tp, to_arrow_schema(schema, timezone="UTC"), options.value_format)
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
