"""Keeps a producer's queues where metadata say that their partitions are: moved, fewer, or gone with their topic.

On the I/O thread, once a second; sooner while something proved wrong.
"""

from __future__ import annotations

from ringlog.client.accumulator import Accumulator, TopicQueues
from ringlog.client.connection import Connection
from ringlog.client.partition_queue import PartitionQueue
from ringlog.client.sender import Sender
from ringlog.errors import UnknownTopic

_LOOK_AT_TOPICS_S = 1.0
_LOOK_AGAIN_S = 0.05
"""Between two looks while records wait for a topic whose metadata proved wrong; longer when it lasts."""
_LOOK_AGAIN_MAX_S = 0.5
"""Reached after about nine seconds: a pause is longer than the first by a twentieth of the time that has passed."""

_DELETED_MAX = 10_000
"""Deleted topics that a producer remembers, the last ones: where they come and go for ever, it must not grow."""


class TopicWatch:
    """Looks at the topics that a producer writes to."""

    def __init__(
        self,
        connection: Connection,
        accumulator: Accumulator,
        sender: Sender,
        topics: dict[str, TopicQueues],
    ) -> None:
        self._connection = connection
        self._accumulator = accumulator
        self._sender = sender
        self._topics = topics
        self._looked_s = -_LOOK_AT_TOPICS_S
        self.calm_until_s = 0.0
        """Until then `step` has nothing to do or to say, unless the sender finds something stale."""
        self._pause_s = _LOOK_AGAIN_S
        self._misplaced: set[str] = set()
        """Topics whose metadata proved wrong, and no others have come yet."""
        self.deleted: dict[str, None] = {}
        """Topics that were deleted while this producer knew them. It does not undo that: others must create them."""

    def step(self, now_s: float) -> float | None:
        """Look if it is time to; when to look again though nothing else happens."""
        is_lost = bool(self._sender.stale or self._misplaced)
        look_at_s = self._looked_s + (self._pause_s if is_lost else _LOOK_AT_TOPICS_S)
        if now_s >= look_at_s and self._topics:
            self._look()
            self._looked_s, look_at_s = now_s, now_s + self._pause_s
        if self._sender.stale or self._misplaced:
            self.calm_until_s = 0.0
            return look_at_s
        self.calm_until_s = self._looked_s + _LOOK_AT_TOPICS_S
        return None

    def _look(self) -> None:
        connection = self._connection
        while self._sender.stale:
            name = self._sender.stale.pop()
            connection.forget(name)
            self._misplaced.add(name)
        for name, queues in list(self._topics.items()):
            if connection.is_gone(name):
                self._bury(name)
                continue
            known = connection.topic_now(name)
            if known is queues.metadata:
                continue
            if known is not None and known.partitions:
                with self._accumulator.lock:
                    self._accumulator.touched.extend(queues.update(known))
                    surplus = queues.drop_surplus()
                if surplus:
                    self._bury_partitions(name, surplus, len(queues.queues))
            if name in self._misplaced and any(queue.lost for queue in queues.queues):
                # Nobody knows the new leader yet.
                connection.forget(name)
                self._pause_s = min(1.05 * self._pause_s, _LOOK_AGAIN_MAX_S)
            else:
                # What came, if only that the topic is gone, is looked at again in its turn.
                self._misplaced.discard(name)
        if not self._misplaced:
            self._pause_s = _LOOK_AGAIN_S

    def _bury(self, name: str) -> None:
        """A topic was deleted: nothing is gained by waiting until its records are late."""
        gone = UnknownTopic(
            f"topic '{name}' was deleted while records were on their way. Create it, and send them again: "
            f"ringlog topic create {name}"
        )
        with self._accumulator.lock:
            self.deleted[name] = None
            if len(self.deleted) > _DELETED_MAX:
                del self.deleted[next(iter(self.deleted))]
            self._misplaced.discard(name)
            self._sender.on_topic_gone(self._topics.pop(name).queues, gone)
        self._connection.wake()  # the sender has had its turn in this pass

    def _bury_partitions(self, name: str, surplus: list[PartitionQueue], left: int) -> None:
        """A topic was made anew with fewer partitions: nobody will ever take what is on its way to the others."""
        gone = UnknownTopic(
            f"topic '{name}' was made anew with partitions 0 to {left - 1} while records were on their way to "
            "others. Send them again"
        )
        self._sender.on_topic_gone(surplus, gone)
        self._connection.wake()
