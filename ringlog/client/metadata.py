"""What a client knows of topics: kept by name, asked for again when it grows old or proves wrong."""

from __future__ import annotations

import threading
import time

from ringlog.errors import (
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
    """Topics by name. `stale` ones are still told, so that work goes on while they are asked for."""

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._topics: dict[str, tuple[TopicMetadata, float]] = {}
        self._seen: dict[str, int] = {}
        """The version of the newest metadata that had a topic."""
        self._gone: set[str] = set()
        self._asked: set[str] = set()

    def fresh(self, name: str) -> TopicMetadata | None:
        """A topic that is known and not stale."""
        known = self._topics.get(name)
        return None if known is None or known[1] <= time.monotonic() else known[0]

    def known(self, name: str) -> TopicMetadata | None:
        """A topic as it was last told, stale or not."""
        known = self._topics.get(name)
        return None if known is None else known[0]

    def names(self) -> list[str]:
        """Of all topics that are known."""
        return list(self._topics)

    def put(self, topic: TopicMetadata, version: int) -> None:
        """Take what a node told as of a version of its metadata; of partitions whose leader moved since it looked, what
        is known stays."""
        with self._lock:
            self._asked.discard(topic.name)
            seen = self._seen.get(topic.name)
            if topic.error:
                self._topics.pop(topic.name, None)
                # A node, or a process of it, that has not heard of a topic yet is no proof that it was deleted.
                if topic.error == UnknownTopic.code and seen is not None and version >= seen:
                    self._gone.add(topic.name)
                return
            self._gone.discard(topic.name)
            self._seen[topic.name] = version if seen is None else max(seen, version)
            known = self._topics.get(topic.name)
            newest = topic if known is None else newer(known[0], topic)
            self._topics[topic.name] = (newest, time.monotonic() + self._max_age_s)

    def is_gone(self, name: str) -> bool:
        """Whether a topic that was known was deleted, and is not known to be there again."""
        return name in self._gone

    def forget(self, name: str) -> None:
        """Let it be stale: it is asked for at the next need."""
        with self._lock:
            known = self._topics.get(name)
            if known is not None:
                self._topics[name] = (known[0], 0.0)

    def drop(self, name: str) -> None:
        """Let it be unknown, as after a delete."""
        with self._lock:
            self._topics.pop(name, None)

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
