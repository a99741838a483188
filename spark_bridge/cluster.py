"""What the driver asks the node: which partitions there are, where their logs begin and end, where they may be cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from ringlog.client.admin import Admin
from ringlog.client.consumer import Consumer
from ringlog.errors import InvalidRequest, UnknownTopic
from ringlog.limits import MIB
from ringlog.model import TopicPartition
from spark_bridge import gap_notes
from spark_bridge.options import EARLIEST, LATEST, Offsets, SourceOptions
from spark_bridge.patience import patiently
from spark_bridge.planning import TASK_BYTES, SplitPoints
from spark_bridge.ranges import OffsetRange

_SPLIT_STEP_BYTES = 1 * MIB
_FRESH_MS = 1
"""What is known of a topic is asked for again each time: it may have been made anew under the same name."""
_PROGRESS_S = 10.0
"""A group's progress is worth a short wait only: the next commit says as much and more."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The partitions of a query at one moment."""

    topic_ids: dict[str, int]
    """By name. An id is never given twice, so a topic that was made anew is known by it."""
    earliest: Offsets
    latest: Offsets
    log_bytes: dict[TopicPartition, int]


class Cluster:
    """Connections to the node, held while a query is planned. Each question has the patience that the options say: a
    part of the node that is being restarted does not end a query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin = Admin(bootstrap=options.bootstrap)
        self._consumer = Consumer(
            bootstrap=options.bootstrap,
            metadata_max_age_ms=_FRESH_MS,
            default_api_timeout_ms=round(options.patience_s * 1000),
        )
        self._progress: Consumer | None = None

    def scene(self, *, missing_ok: bool = False) -> Scene:
        """All partitions that the query reads, as they are now. UnknownTopic when one that is named is missing, unless
        it may be."""
        options = self._options
        if options.pattern is not None:
            names: Iterable[str] = self._fitting(pattern_of(options.pattern))
            missing_ok = True  # deleted since it was listed
        else:
            names = options.subscribe or {tp.topic: None for tp in options.assign}
        scene = Scene({}, {}, {}, {})
        for name in names:
            with suppress(UnknownTopic) if missing_ok else nullcontext():
                self._add(scene, name)
        return scene

    def _fitting(self, pattern: re.Pattern[str]) -> list[str]:
        names = patiently(
            lambda timeout_s: self._admin.list_topics(timeout=timeout_s), self._options.patience_s
        )
        return [name for name in names if pattern.fullmatch(name)]

    def _add(self, scene: Scene, name: str) -> None:
        """Where logs begin and end is asked of those who lead them, who answer when they know. A description is only
        what somebody knows at the moment: nothing of a partition without a leader, and too little after an election."""
        patience_s = self._options.patience_s
        topic = patiently(lambda timeout_s: self._admin.describe_topic(name, timeout=timeout_s), patience_s)
        rows = {TopicPartition(name, row.index): row for row in topic.partitions}
        tps = [tp for tp in self._options.assign if tp.topic == name] or list(rows)
        for tp in tps:
            if tp not in rows:
                raise InvalidRequest(
                    f"option 'assign' names {tp}, and there are partitions 0 to {len(rows) - 1}"
                )
        earliest = patiently(lambda _: self._consumer.beginning_offsets(tps), patience_s)
        latest = patiently(lambda _: self._consumer.end_offsets(tps), patience_s)
        scene.topic_ids[name] = topic.topic_id
        scene.earliest.update(earliest)
        scene.latest.update(latest)
        scene.log_bytes.update({tp: rows[tp].bytes for tp in tps})

    def at_time(self, scene: Scene, tps: Iterable[TopicPartition], time_ms: int) -> Offsets:
        """The first offset at or after a time; the end of a log where no record is that young."""
        times: dict[TopicPartition | tuple[str, int], int] = dict.fromkeys(tps, time_ms)
        found = patiently(lambda _: self._consumer.offsets_for_times(times), self._options.patience_s)
        return {tp: scene.latest[tp] if at is None else at.offset for tp, at in found.items()}

    def starts(self, scene: Scene) -> Offsets:
        """Where the options let a query begin."""
        if self._options.starting_ms is not None:
            return self.at_time(scene, scene.latest, self._options.starting_ms)
        return _resolved(self._options.starting, scene, "startingOffsets")

    def ends(self, scene: Scene) -> Offsets:
        """Where the options let a batch read end."""
        if self._options.ending_ms is not None:
            return self.at_time(scene, scene.latest, self._options.ending_ms)
        return _resolved(self._options.ending, scene, "endingOffsets")

    def split_points(
        self, scene: Scene, ranges: Sequence[OffsetRange], *, everywhere: bool
    ) -> dict[OffsetRange, SplitPoints]:
        """Where ranges may be cut: those of large logs, or all of them."""
        found: dict[OffsetRange, SplitPoints] = {}
        for part in ranges:
            if everywhere or scene.log_bytes.get(part.tp, 0) > TASK_BYTES:
                found[part] = patiently(partial(self._split, scene, part), self._options.patience_s)
        return found

    def _split(self, scene: Scene, part: OffsetRange, timeout_s: float) -> SplitPoints:
        points = self._admin.split_points(
            *part.tp, part.start, part.end, every_bytes=_SPLIT_STEP_BYTES, timeout=timeout_s
        )
        held = max(1, scene.latest[part.tp] - scene.earliest[part.tp])
        share = scene.log_bytes[part.tp] * min(part.offsets, held) // held
        return SplitPoints(points.offsets, points.step_bytes, share)

    def skipped(self, read_id: str, task: OffsetRange) -> gap_notes.Note | None:
        """What a task noted that it skipped; told once."""
        patience_s = self._options.patience_s
        note = patiently(partial(gap_notes.collected, self._admin, read_id, task), patience_s)
        if note is not None:
            patiently(partial(gap_notes.forget, self._admin, read_id, task), patience_s)
        return note

    def commit(self, group_id: str, offsets: Offsets) -> None:
        """Let a group's progress be known."""
        if self._progress is None:
            self._progress = Consumer(
                bootstrap=self._options.bootstrap, group_id=group_id, enable_auto_commit=False
            )
        progress = self._progress
        patiently(
            lambda timeout_s: progress.commit(dict(offsets.items()), timeout_ms=timeout_s * 1000),
            min(_PROGRESS_S, self._options.patience_s),
        )

    def close(self) -> None:
        self._admin.close()
        self._consumer.close()
        if self._progress is not None:
            self._progress.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _resolved(wanted: int | Offsets, scene: Scene, option: str) -> Offsets:
    tps = set(scene.latest)
    if isinstance(wanted, int):
        wanted = dict.fromkeys(scene.latest, wanted)
    elif set(wanted) != tps:
        missing, extra = sorted(tps - set(wanted)), sorted(set(wanted) - tps)
        wrong = f"does not name {missing[0]}" if missing else f"names {extra[0]}, which is not read"
        raise InvalidRequest(f"option '{option}' must name every partition that is read, and {wrong}")
    for tp, at in wanted.items():
        if at > scene.latest[tp]:
            raise InvalidRequest(
                f"option '{option}': {tp} ends at {scene.latest[tp]}, and has no offset {at} yet"
            )
    words = {EARLIEST: scene.earliest, LATEST: scene.latest}
    return {tp: words[at][tp] if at in words else at for tp, at in wanted.items()}


def pattern_of(text: str) -> re.Pattern[str]:
    """The regular expression of option `subscribePattern`."""
    try:
        return re.compile(text)
    except re.error as wrong:
        raise InvalidRequest(f"option 'subscribePattern' is no regular expression: {wrong}") from None
