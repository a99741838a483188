"""A batch read: planned once on the driver, each range read by one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from spark_bridge.cluster import Cluster, Scene
from spark_bridge.filters import Bounds, bounds_of
from spark_bridge.gap_notes import TaskNotes, new_read_id
from spark_bridge.gaps import GapPolicy
from spark_bridge.options import SourceOptions
from spark_bridge.planning import tasks_of
from spark_bridge.ranges import OffsetRange
from spark_bridge.route import Route
from spark_bridge.schema import check_schema
from spark_bridge.tasks import Task, read_rows

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType


class BatchReader(DataSourceReader):
    """Travels to the tasks: it holds no connection."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options
        self._schema = schema
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note what the filters leave to be read. All are returned, so that Spark applies them to each row."""
        self._bounds = bounds_of(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        bounds = self._bounds
        read_id = new_read_id()
        with Cluster(self._options) as cluster:
            scene = cluster.scene()
            starts, ends = bounds.start(cluster.starts(scene)), bounds.end(cluster.ends(scene))
            tps = [tp for tp in scene.latest if bounds.admits(tp)]
            if bounds.time_min_ms is not None:
                since = cluster.at_time(scene, tps, bounds.time_min_ms)
                starts |= {tp: max(starts[tp], at) for tp, at in since.items()}
            ids = scene.topic_ids
            ranges = [
                OffsetRange(*tp, starts[tp], ends[tp], ids[tp.topic]) for tp in tps if starts[tp] < ends[tp]
            ]
            kept = [part for one in ranges for part in self._readable(one, scene, read_id)]
            most = self._options.partitions_min
            points = cluster.split_points(scene, kept, everywhere=most is not None and most > len(kept))
        route = Route.found(self._options) if kept else Route(None)
        return [InputPartition(Task(part, route, read_id)) for part in tasks_of(kept, points, most)]

    def _readable(self, part: OffsetRange, scene: Scene, read_id: str) -> list[OffsetRange]:
        """What there is of a range. A batch read has no progress to tell of a gap: it is noted as a task's is."""
        notes = TaskNotes(self._options, read_id, part)
        gaps = GapPolicy(self._options.fail_on_data_loss, notes.tell)
        return gaps.readable([part], scene.topic_ids, scene.earliest)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if partition.value is None:
            return iter(())  # what Spark makes when there is nothing to read
        return read_rows(self._options, self._schema, partition.value)
