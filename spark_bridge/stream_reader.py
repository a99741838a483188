"""A streaming read: offsets are planned on the driver for each micro-batch, ranges read by tasks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ringlog.errors import RinglogError
from ringlog.model import TopicPartition
from spark_bridge.cluster import Cluster, Scene
from spark_bridge.gap_notes import new_read_id
from spark_bridge.gaps import GapPolicy, suspects, vanished
from spark_bridge.offsets import from_json, to_json
from spark_bridge.options import Offsets, SourceOptions
from spark_bridge.planning import limited, tasks_of
from spark_bridge.ranges import OffsetRange
from spark_bridge.route import Pathfinder
from spark_bridge.schema import check_schema
from spark_bridge.tasks import Task, read_rows

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """On the driver it holds connections; a copy that travels to the tasks never had one.

    A partition that is new, or whose log was made anew, enters the offsets of a micro-batch with where its log begins,
    and is read from the next one on: so the checkpoint alone says what a batch holds, however often it is planned.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options
        self._schema = schema
        self._gaps = GapPolicy(options.fail_on_data_loss)
        self._cluster: Cluster | None = None
        self._path = Pathfinder(options)
        self._scene: Scene | None = None
        """As last seen."""
        self._read_id = new_read_id()
        self._planned: list[OffsetRange] = []
        """What the tasks of the last micro-batch were given, until it is known what they skipped."""
        self._target: Offsets | None = None
        """With trigger AvailableNow: what the query goes to."""

    # -- offsets -----------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        cluster = self._connected()
        self._scene = scene = cluster.scene()  # nothing was read yet: a name that is missing is a wrong one
        return to_json(cluster.starts(scene), scene.topic_ids)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._look()[1].latest

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = self._scene
        _, scene = self._look()
        self._look_back(scene)
        had, had_ids = from_json(start)
        begin = dict(had)
        seen = before.latest if before is not None and before.topic_ids.items() >= had_ids.items() else None
        for tp, gap in vanished(had, had_ids, scene.latest, scene.topic_ids, seen).items():
            self._gaps.meet(gap)
            del begin[tp]
        ends = {tp: at for tp, at in scene.latest.items() if tp in begin}
        if self._target is not None:
            ends = {tp: min(at, max(begin[tp], self._target.get(tp, begin[tp]))) for tp, at in ends.items()}
        new = {tp: at for tp, at in scene.earliest.items() if tp not in begin}
        if self._target is not None:
            new = {tp: at for tp, at in new.items() if tp in self._target}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json(limited(begin, ends, most) | new, scene.topic_ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the logs end, as `latestOffset` in the query's progress; and how much was lost, if something was."""
        if self._scene is None:
            return None
        found = to_json(self._scene.latest, self._scene.topic_ids)
        if self._gaps.lost:
            found["lostOffsets"] = _by_name(self._gaps.lost)
        return found

    # -- a micro-batch -----------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, begin_ids = from_json(start)
        ends, end_ids = from_json(end)
        ranges = [
            OffsetRange(*tp, begin[tp], at, end_ids[tp.topic])
            for tp, at in ends.items()
            if begin.get(tp, at) < at and begin_ids[tp.topic] == end_ids[tp.topic]
        ]
        if not ranges:
            return []
        cluster, scene = self._look()
        kept = self._gaps.readable(ranges, scene.topic_ids, scene.earliest)
        most = self._options.partitions_min
        points = cluster.split_points(scene, kept, everywhere=most is not None and most > len(kept))
        route = self._path.route()
        self._planned = tasks_of(kept, points, most)
        return [InputPartition(Task(part, route, self._read_id)) for part in self._planned]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read_rows(self._options, self._schema, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything below is done: told to the group that option `groupId` names."""
        if self._options.group_id is None:
            return
        try:
            self._connected().commit(self._options.group_id, from_json(end)[0])
        except RinglogError as error:
            # The checkpoint is what counts; the next commit says as much and more.
            log.warning("the progress of group '%s' was not committed: %s", self._options.group_id, error)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster

    def _look_back(self, scene: Scene) -> None:
        """Learn what tasks of the last micro-batch skipped. It is asked for only where a log has lost something since
        they were planned: this costs nothing while all is well."""
        cluster = self._connected()
        for task in suspects(self._planned, scene.topic_ids, scene.earliest, scene.latest):
            note = cluster.skipped(self._read_id, task)
            if note is not None:
                self._gaps.heard(task.tp, note.offsets, note.lost)
        self._planned = []

    def _look(self) -> tuple[Cluster, Scene]:
        """A topic that is named and gone ends the query, unless it may lose data: then it may come again."""
        cluster = self._connected()
        self._scene = cluster.scene(missing_ok=not self._options.fail_on_data_loss)
        return cluster, self._scene


def _by_name(counts: Counter[TopicPartition]) -> dict[str, int]:
    return {str(tp): count for tp, count in sorted(counts.items())}
