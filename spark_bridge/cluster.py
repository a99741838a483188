"""What the driver asks the node: which partitions there are, and where their logs begin and end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import TracebackType

from ringlog.client.admin import Admin
from ringlog.client.consumer import Consumer
from ringlog.errors import InvalidRequest, UnknownTopic
from ringlog.model import TopicPartition
from spark_bridge.options import EARLIEST, LATEST, Offsets, SourceOptions

_FRESH_MS = 1
"""What is known of a topic is asked for again each time: new partitions must be found by the next micro-batch."""


class Cluster:
    """One connection to the node, held while a query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._consumer = Consumer(bootstrap=options.bootstrap, metadata_max_age_ms=_FRESH_MS)
        self._admin = Admin(bootstrap=options.bootstrap)

    def partitions(self) -> list[TopicPartition]:
        """All partitions that the query reads, as there are now. UnknownTopic when one that is named is missing."""
        options = self._options
        if options.assign:
            counts = {topic: self._count(topic) for topic in {tp.topic for tp in options.assign}}
            for tp in options.assign:
                if tp.partition >= counts[tp.topic]:
                    raise UnknownTopic(
                        f"option 'assign' names {tp}, and there are partitions 0 to {counts[tp.topic] - 1}"
                    )
            return list(options.assign)
        topics: Iterable[str] = options.subscribe
        if options.pattern is not None:
            pattern = pattern_of(options.pattern)
            topics = [name for name in self._admin.list_topics() if pattern.fullmatch(name)]
        return [TopicPartition(topic, n) for topic in topics for n in range(self._count(topic))]

    def earliest(self, tps: Iterable[TopicPartition]) -> Offsets:
        return self._consumer.beginning_offsets(tps)

    def latest(self, tps: Iterable[TopicPartition]) -> Offsets:
        return self._consumer.end_offsets(tps)

    def at_time(self, tps: Iterable[TopicPartition], time_ms: int) -> Offsets:
        """The first offset at or after a time; the end of a log where no record is that young."""
        some = list(tps)
        found = self._consumer.offsets_for_times(dict.fromkeys(some, time_ms))
        ends = self.latest([tp for tp, at in found.items() if at is None])
        return {tp: ends[tp] if at is None else at.offset for tp, at in found.items()}

    def starts(self, tps: list[TopicPartition]) -> Offsets:
        """Where the options let a query begin."""
        if self._options.starting_ms is not None:
            return self.at_time(tps, self._options.starting_ms)
        return self._resolved(self._options.starting, tps, "startingOffsets")

    def ends(self, tps: list[TopicPartition]) -> Offsets:
        """Where the options let a batch read end."""
        if self._options.ending_ms is not None:
            return self.at_time(tps, self._options.ending_ms)
        return self._resolved(self._options.ending, tps, "endingOffsets")

    def _resolved(self, wanted: int | Offsets, tps: list[TopicPartition], option: str) -> Offsets:
        if isinstance(wanted, int):
            wanted = dict.fromkeys(tps, wanted)
        elif set(wanted) != set(tps):
            missing, extra = sorted(set(tps) - set(wanted)), sorted(set(wanted) - set(tps))
            wrong = f"does not name {missing[0]}" if missing else f"names {extra[0]}, which is not read"
            raise InvalidRequest(f"option '{option}' must name every partition that is read, and {wrong}")
        words = {EARLIEST: self.earliest, LATEST: self.latest}
        found = dict(wanted)
        for word, ask in words.items():
            some = [tp for tp, offset in wanted.items() if offset == word]
            if some:
                found |= ask(some)
        return found

    def _count(self, topic: str) -> int:
        return len(self._consumer.partitions_for_topic(topic))

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def pattern_of(text: str) -> re.Pattern[str]:
    """The regular expression of option `subscribePattern`."""
    try:
        return re.compile(text)
    except re.error as wrong:
        raise InvalidRequest(f"option 'subscribePattern' is no regular expression: {wrong}") from None
