"""One assigned partition, as a fetcher sees it: where the reader is, what waits for it, what went wrong."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ringlog.client.chunk import Chunk
from ringlog.errors import RinglogError
from ringlog.model import TopicPartition
from ringlog.net.session import ANY_NODE

UNKNOWN = -1


class Place(NamedTuple):
    """Where metadata say that a partition is served."""

    topic_id: int
    partition: int
    """The node-wide id, which frames name."""
    lane: int
    node: int = ANY_NODE
    """The node that leads it; ANY_NODE without a cluster."""
    leader_epoch: int = 0
    in_sync: tuple[tuple[int, int], ...] = ()
    """The nodes that have all that is committed, each with the lane that serves it there."""


class Assigned:
    """A partition in one of these states; `generation` grows whenever answers under way no longer count.

    SETTLING  `reset` says which end of the log to start from; nothing is fetched until that offset is known
    MISPLACED the metadata proved wrong; nothing is asked until they were refreshed
    FETCHING  `position` ≤ every record in `chunks` < `fetch_offset`, in order and without a gap
    FAILED    `failure` waits for the poller, behind the chunks. Once it was told it stands until an answer knows of
              none: asked is again, and no poll comes back empty meanwhile
    """

    __slots__ = (
        "buffered_bytes",
        "chunks",
        "failure",
        "failure_told",
        "far_until_s",
        "fetch_offset",
        "generation",
        "in_flight",
        "log_start_offset",
        "misplaced",
        "paused",
        "place",
        "position",
        "queued",
        "quiet",
        "readable_offset",
        "reset",
        "retries",
        "retry_at_s",
        "tp",
    )

    def __init__(self, tp: TopicPartition, place: Place) -> None:
        self.tp = tp
        self.place = place
        self.generation = 0
        self.position = UNKNOWN
        """The offset that the poller gets next."""
        self.fetch_offset = UNKNOWN
        """The offset to ask the node for next."""
        self.reset: int | None = None
        """EARLIEST or LATEST: to be looked up, once the chunks are polled."""
        self.misplaced = False
        self.far_until_s = 0.0
        """Until then its leader is asked, though a follower would be nearer."""
        self.paused = False
        self.in_flight = False
        self.queued = False
        """In the fetcher's queue of partitions that have something for the poller."""
        self.quiet = False
        """The last answer brought nothing new."""
        self.chunks: deque[Chunk] = deque()
        self.buffered_bytes = 0
        self.failure: RinglogError | None = None
        self.failure_told = False
        """The poller knows of it: what was asked may be asked again."""
        self.retries = 0
        self.retry_at_s = 0.0
        self.readable_offset = UNKNOWN
        self.log_start_offset = UNKNOWN

    def replace_head(self, *parts: Chunk) -> None:
        """Put chunks that say the same together in the place of the first one."""
        self.chunks.popleft()
        self.chunks.extendleft(reversed(parts))

    def outdate(self) -> int:
        """Let no answer that is under way count, and drop what came before. Says how many bytes went."""
        dropped = self.buffered_bytes
        self.generation += 1
        self.in_flight = False
        self.quiet = False
        self.chunks.clear()
        self.buffered_bytes = 0
        self.recover()
        self.retries, self.retry_at_s = 0, 0.0
        return dropped

    def fail(self, error: RinglogError) -> None:
        """Retries do not help: the poller has to know."""
        self.failure, self.failure_told = error, False

    def recover(self) -> None:
        """An answer knows of no failure."""
        self.failure, self.failure_told = None, False

    def stand_at(self, offset: int) -> None:
        """Read on from an offset. There must be no chunks."""
        self.position = self.fetch_offset = offset
        self.reset = None

    def back_off(self, now_s: float, first_s: float, most_s: float) -> None:
        self.retry_at_s = now_s + min(first_s * 2**self.retries, most_s)
        self.retries = min(self.retries + 1, 16)
