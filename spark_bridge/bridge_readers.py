"""The bridge's readers of the log: one consumer each, kept where it is read on, closed when nobody needs it.

There are so many at most; what is asked for while all of them are busy waits its turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from ringlog.client.consumer import Consumer
from ringlog.errors import RequestTimeout, StaleMetadata
from ringlog.limits import BRIDGE_READERS_MAX
from spark_bridge.arrow_rows import decoded
from spark_bridge.bridge_cache import Piece
from spark_bridge.bridge_desk import Place
from spark_bridge.direct import FETCH_BYTES

IDLE_S = 30.0
_FETCH_S = 5.0
"""What a range asks for is in the log already: it comes at once, or something is wrong."""


class LogReader:
    """One consumer. Used by one thread at a time."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            bootstrap=bootstrap, auto_offset_reset="error", max_partition_fetch_bytes=FETCH_BYTES
        )
        self.at: Place | None = None
        """Where it would read on."""
        self.client = b""
        """For whom it read last; empty when that one has left."""
        self.busy = False
        self.used_s = time.monotonic()

    def fetch(self, place: Place) -> Piece:
        """The records from a place on, decoded; as many as came in one go."""
        (tp, columns, topic_id), offset = place
        if not self.stands_at(place):
            self._consumer.assign([(*tp, offset)])
        self.at = None
        found = self._consumer.poll_batches(timeout_ms=_FETCH_S * 1000)
        if found is None:
            raise RequestTimeout(f"{tp}: nothing came from offset {offset} on within {_FETCH_S:.0f} s")
        if topic_id not in (None, found.topic_id):
            raise StaleMetadata(
                f"topic '{tp.topic}' was deleted and made anew since {tp} was planned to be read"
            )
        batch = decoded(found.data, columns)
        self.at = Place(place.wanted, found.next_offset)
        return Piece(offset, found.next_offset, batch.nbytes, batch)

    def stands_at(self, place: Place) -> bool:
        """Whether it would read on there, with any columns."""
        at, wanted = self.at, place.wanted
        return at is not None and (at.wanted.tp, at.wanted.topic_id, at.offset) == (
            wanted.tp,
            wanted.topic_id,
            place.offset,
        )

    def close(self) -> None:
        self._consumer.close()


class Fetch(NamedTuple):
    """Something that is to be fetched, for whom, and who is told of it: on a reader's thread."""

    place: Place
    client: bytes
    done: Callable[[Place, Future[Piece]], None]


class Readers:
    """All of them, and the threads that they work on. Used by one thread."""

    def __init__(self, bootstrap: str, threads: int, readers_max: int = BRIDGE_READERS_MAX) -> None:
        self._bootstrap = bootstrap
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="bridge-read")
        self._readers: list[LogReader] = []
        self._readers_max = readers_max
        self._queue: deque[Fetch] = deque()

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def waiting(self) -> int:
        """Fetches whose turn has not come."""
        return len(self._queue)

    def fetch(self, place: Place, client: bytes, done: Callable[[Place, Future[Piece]], None]) -> None:
        """Fetch in the background, as soon as a reader is free."""
        self._queue.append(Fetch(place, client, done))

    def go_on(self, is_wanted: Callable[[Place], bool]) -> None:
        """Begin what can be begun, in the order in which it was asked for, and forget what nobody waits for."""
        while self._queue:
            if is_wanted(self._queue[0].place):
                reader = self._choose(self._queue[0].place)
                if reader is None:
                    return
                self._begin(reader, self._queue[0])
            self._queue.popleft()

    def _begin(self, reader: LogReader, fetch: Fetch) -> None:
        place, client, done = fetch
        reader.busy, reader.client = True, client

        def work() -> Piece:
            try:
                return reader.fetch(place)
            finally:
                reader.used_s, reader.busy = time.monotonic(), False

        self._pool.submit(work).add_done_callback(lambda future: done(place, future))

    def _choose(self, place: Place) -> LogReader | None:
        """The one that would read on there; else a new one, or the one that was idle longest; None: all are busy."""
        idle = [reader for reader in self._readers if not reader.busy]
        for reader in idle:
            if reader.stands_at(place):
                return reader
        if len(self._readers) < self._readers_max:
            reader = LogReader(self._bootstrap)
            self._readers.append(reader)
            return reader
        return min(idle, key=lambda reader: reader.used_s, default=None)

    def release(self, client: bytes) -> None:
        """A client is gone: what was read ahead for it is let go of, as soon as it is not being used."""
        for reader in self._readers:
            if reader.client == client:
                reader.client = b""

    def expire(self, now_s: float) -> None:
        """Close those that nobody needs, or used for long."""
        idle = [reader for reader in self._readers if not reader.busy]
        self._close([one for one in idle if not one.client or now_s - one.used_s > IDLE_S])

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for reader in self._readers:
            reader.close()

    def _close(self, some: list[LogReader]) -> None:
        for reader in some:
            self._readers.remove(reader)
            self._pool.submit(reader.close)
