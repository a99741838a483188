"""What a client knows of topics: kept by name, asked for again when it grows old or proves wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ringlog.errors import (
    CorruptFrame,
    InvalidRequest,
    NodeUnavailable,
    PartitionOffline,
    RinglogError,
    StaleMetadata,
    UnknownTopic,
)
from ringlog.limits import TOPIC_NAME_CHARS_MAX
from ringlog.net.messages import ErrorReply, TopicMetadata
from ringlog.net.wire_errors import raised

LOOK_AGAIN = (StaleMetadata, NodeUnavailable, PartitionOffline)
"""Errors after which another node may lead: look at the metadata before the next attempt."""
INTERNAL_PREFIX = "__"
"""Of topics of the node itself."""
_KEPT_S_MIN = 60.0
"""So long a topic that nobody asks for is known at least, however soon it is stale."""


def topic_error(topic: TopicMetadata) -> RinglogError | None:
    """Why a metadata reply has no such topic, None when it has."""
    if not topic.error:
        return None
    if topic.error == UnknownTopic.code:
        return UnknownTopic(f"there is no topic '{topic.name}'. Create it: ringlog topic create {topic.name}")
    if topic.error == InvalidRequest.code:
        return InvalidRequest(
            f"topic {topic.name[:300]!r} cannot be made: a name has 1 to {TOPIC_NAME_CHARS_MAX} of the letters "
            "a-z A-Z 0-9 . _ - and does not begin with __"
        )
    return raised(ErrorReply(topic.error, f"topic '{topic.name}': {topic.error}", False))


def check_whole(topic: TopicMetadata) -> None:
    """CorruptFrame unless a topic's partitions are numbered from 0 on: keys are spread over them by their number."""
    if sorted(place.index for place in topic.partitions) != list(range(len(topic.partitions))):
        raise CorruptFrame(
            "partitions", 32, f"topic {topic.name[:300]!r} has other partitions than 0, 1, 2 and so on"
        )


def newer(known: TopicMetadata, told: TopicMetadata) -> TopicMetadata:
    """What is told of a topic, with the places of partitions that are known to be led in a later epoch."""
    if known.topic_id != told.topic_id or not any(place.replicas for place in told.partitions):
        return told
    later = {place.partition: place for place in known.partitions}
    places = [
        later[place.partition]
        if place.partition in later and later[place.partition].leader_epoch > place.leader_epoch
        else place
        for place in told.partitions
    ]
    if places == told.partitions:
        return told
    return TopicMetadata(told.name, told.error, told.topic_id, places, told.config)


class TopicCache:
    """Topics by name. `stale` ones are still told, so that work goes on while they are asked for.

    One that nobody has asked for in twice the time that it is fresh is dropped: a client that looks at many topics,
    which come and go, would grow for ever. Those of the node itself stay: they are few, and do not go.
    """

    def __init__(self, max_age_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_age_s = max_age_s
        self._kept_s = max(2 * max_age_s, _KEPT_S_MIN)
        self._clock = clock
        self._sweep_at_s = clock() + self._kept_s
        self._lock = threading.Lock()
        self._told_s: dict[str, float] = {}
        """When something was last told of each name that is in any of the following."""
        self._topics: dict[str, tuple[TopicMetadata, float]] = {}
        self._seen: dict[str, int] = {}
        """The version of the newest metadata that had a topic."""
        self._gone: set[str] = set()
        self._asked: set[str] = set()

    def fresh(self, name: str) -> TopicMetadata | None:
        """A topic that is known and not stale."""
        known = self._topics.get(name)
        return None if known is None or known[1] <= self._clock() else known[0]

    def known(self, name: str) -> TopicMetadata | None:
        """A topic as it was last told, stale or not."""
        known = self._topics.get(name)
        return None if known is None else known[0]

    def names(self) -> list[str]:
        """Of all topics that are known."""
        return list(self._topics)

    def put(self, topic: TopicMetadata, version: int) -> TopicMetadata | None:
        """Take what a node told as of a version of its metadata; of partitions whose leader moved since it looked, what
        is known stays. Returns a topic of that name which is no more."""
        with self._lock:
            now_s = self._clock()
            self._told_s[topic.name] = now_s
            self._asked.discard(topic.name)
            seen = self._seen.get(topic.name)
            known, _ = self._topics.get(topic.name, (None, 0.0))
            if topic.error:
                self._topics.pop(topic.name, None)
                # A node, or a process of it, that has not heard of a topic yet is no proof that it was deleted.
                if topic.error == UnknownTopic.code and seen is not None and version >= seen:
                    self._gone.add(topic.name)
                    return known
                return None
            self._gone.discard(topic.name)
            self._seen[topic.name] = version if seen is None else max(seen, version)
            newest = topic if known is None else newer(known, topic)
            self._topics[topic.name] = (newest, now_s + self._max_age_s)
            return None if known is None or known.topic_id == topic.topic_id else known

    def sweep(self) -> list[TopicMetadata]:
        """Drop what nobody has asked for in long, once in a while. Returns what was known of it."""
        now_s = self._clock()
        if now_s < self._sweep_at_s:
            return []
        with self._lock:
            self._sweep_at_s = now_s + self._kept_s
            old = [
                name
                for name, told_s in self._told_s.items()
                if now_s - told_s >= self._kept_s
                and name not in self._asked  # what is told of it soon is judged by what was known before
                and not name.startswith(INTERNAL_PREFIX)
            ]
            return [topic for topic in map(self._drop, old) if topic is not None]

    def is_gone(self, name: str) -> bool:
        """Whether a topic that was known was deleted, and is not known to be there again."""
        return name in self._gone

    def forget(self, name: str) -> None:
        """Let it be stale: it is asked for at the next need."""
        with self._lock:
            known = self._topics.get(name)
            if known is not None:
                self._topics[name] = (known[0], 0.0)

    def drop(self, name: str) -> TopicMetadata | None:
        """Let it be unknown, as after a delete. Returns what was known of it."""
        with self._lock:
            return self._drop(name)

    def _drop(self, name: str) -> TopicMetadata | None:
        known, _ = self._topics.pop(name, (None, 0.0))
        self._told_s.pop(name, None)
        self._seen.pop(name, None)
        self._gone.discard(name)
        return known

    def ask_once(self, name: str) -> bool:
        """Whether the caller should ask: nobody else's question is on its way."""
        with self._lock:
            if name in self._asked:
                return False
            self._asked.add(name)
            return True

    def not_answered(self, *names: str) -> None:
        with self._lock:
            self._asked.difference_update(names)
