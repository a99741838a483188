"""The producer: records in, futures out. It gathers, and the connection's I/O thread sends."""

from __future__ import annotations

import logging
import random
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from ringlog.client import last_words
from ringlog.client.accumulator import BATCH_BYTES_MAX, Accumulator, TopicQueues
from ringlog.client.connection import Connection
from ringlog.client.futures import ManyFuture, Part, RecordFuture
from ringlog.client.many import Chunk, Rows, chunks_of, refused_time, rows_by_partition
from ringlog.client.metadata import INTERNAL_PREFIX
from ringlog.client.near_memory import near_memory
from ringlog.client.partition_queue import Batch, PartitionQueue, ProducerId
from ringlog.client.sender import Sender
from ringlog.client.settings import ProducerSettings, acks_of, refused_topic, settings_of
from ringlog.client.topic_watch import TopicWatch
from ringlog.client.waits import checked_s
from ringlog.errors import (
    BatchTooLarge,
    BufferFull,
    ClientClosed,
    InvalidRequest,
    RequestTimeout,
    RinglogError,
)
from ringlog.net.framing import Acks, Api, Header
from ringlog.net.messages import (
    InitProducerReply,
    InitProducerRequest,
    ProduceReply,
    decode_body,
    encode_body,
)
from ringlog.net.session import Request
from ringlog.records.builder import HEADROOM, cut_columns
from ringlog.records.partitioner import partition_for

Headers = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]

_log = logging.getLogger(__name__)
_CLOSED = "the producer was closed; make a new one"


class Producer:
    """Sends records to topics. Safe to use from many threads, and in the child of a fork.

    `producer.produce("readings", b"21.5", key=b"hall").result(5).offset` waits for one record; without `result`, many
    are on their way at once, and `flush()` waits for all. Settings are those of `ProducerSettings`, by Kafka's names.
    `bootstrap` is where nodes listen, `host:port` with commas between several; without it the environment variable
    RINGLOG_BOOTSTRAP says so, or it is 127.0.0.1:9400. While none answers, a warning is logged after three seconds.
    With acks=0 a record is done when it has left: the offset is -1 and the durability "none". A node that is behind
    holds such a producer up as it does others; what it cannot take for another reason is lost without a word.

    Close it, or use it in a `with` block. At the end of a program that did not, up to five seconds are spent on what
    is still on its way, and a warning is logged when that is not enough.
    """

    def __init__(self, bootstrap: str | None = None, **settings: Any) -> None:
        if bootstrap is not None:
            settings["bootstrap"] = bootstrap
        self._settings = settings_of(ProducerSettings, settings)
        self._acks = acks_of(self._settings.acks)
        self._connection = Connection(self._settings)
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._begin()
        self._connection.on_tick(self._tick)
        self._connection.on_fork(self._begin)
        self._connection.on_end(self._io_ended)
        last_words.expect_close(self)

    def _begin(self) -> None:
        """Everything that belongs to one process: a child begins with nothing on its way."""
        self._topics: dict[str, TopicQueues] = {}
        near = self._near = near_memory(self._settings.batch_size + HEADROOM)
        self._connection.share(lambda: near)
        self._accumulator = Accumulator(self._settings, self._connection.check_may_wait)
        self._lock = self._accumulator.lock
        self._sender = Sender(self._settings, self._accumulator, lambda: random.uniform(0.8, 1.2))
        self._asked_producer = False
        self._ask_producer_at_s = 0.0
        self._watch = TopicWatch(self._connection, self._accumulator, self._sender, self._topics)
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(
            self, _let_go, self._connection, self._sender, self._topics, self._accumulator
        )
        self._finalizer.atexit = False  # nobody is left to be told

    # -- records ---------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        acks: str | int | None = None,
        on_delivery: Callable[[RecordFuture], object] | None = None,
    ) -> RecordFuture:
        """Send one record; the future says where it stands. A topic that is missing is created; one that is deleted
        while it is written to is an UnknownTopic, until somebody creates it again.

        `timestamp` is milliseconds, None: now. Without a partition, a key decides it as Kafka's murmur2 does, and
        records without a key are spread batch by batch. Blocks while the buffer is full, at most max_block_ms.

        `on_delivery(future)` is called once, and must not block: on the I/O thread; on the caller's when the record is
        done before this returns; on the one that closes the producer, for what had not left by then.
        """
        if on_delivery is not None and not callable(on_delivery):
            raise TypeError(f"on_delivery must be a function of the future, not {type(on_delivery).__name__}")
        try:
            queues = self._topics.get(topic)
        except TypeError:
            raise refused_topic(topic) from None
        if queues is None:
            queues = self._open(topic)
        if partition is not None:
            queue = self._named(queues, partition)
        elif key is None:
            queue = queues.sticky
        else:
            known = queues.queues
            try:
                raw = key.encode() if isinstance(key, str) else key
                queue = known[partition_for(raw, len(known))]
            except UnicodeEncodeError as wrong:
                raise InvalidRequest(f"key: {wrong}") from None
            except TypeError:
                raise TypeError(f"key must be bytes, str or None, not {type(key).__name__}") from None
        try:
            future = None
            if acks is None:
                with self._lock:
                    opened = queue.open
                    if opened is not None and opened.acks is self._acks:
                        future = opened.append(value, key, timestamp, headers)
            if future is None:
                wanted = self._acks if acks is None else acks_of(acks)
                to = None if partition is None and key is None else queue
                future = self._append(queues, to, (value, key, timestamp, headers), wanted)
        except ValueError as wrong:
            raise InvalidRequest(str(wrong)) from None
        except OverflowError:
            raise refused_time(timestamp) from None
        except TypeError:
            if timestamp is not None and not isinstance(timestamp, int):
                raise refused_time(timestamp) from None
            raise
        if on_delivery is not None:
            future.add_done_callback(on_delivery)
        return future

    def produce_many(
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        headers: Any = None,
        timestamps: Any = None,
        partition: int | None = None,
    ) -> ManyFuture:
        """Send many records without Python per record; `result(timeout)` lists where they stand, by batch.

        `values` and `keys` are lists of bytes, str or None, Arrow arrays (ChunkedArrays too), or NumPy arrays;
        `headers` is an Arrow array of lists; `timestamps` are milliseconds, one or one for each record. With keys
        each record goes to its key's partition; without, batches go round the partitions. A few records join a batch
        with those that were produced before and after them. Blocks as `produce` does; when it raises midway, the
        batches that were made before are on their way: `flush` waits for them.
        """
        if self._connection.closed:
            raise ClientClosed(_CLOSED)
        if not isinstance(topic, str):
            raise refused_topic(topic)
        queues = self._topics.get(topic) or self._open(topic)
        fixed = None if partition is None else self._named(queues, partition)
        parts: list[Part] = []
        for chunk in chunks_of(values, keys, headers, timestamps, time.time_ns() // 1_000_000):
            if fixed is not None or chunk.keys is None:
                self._send_rows(queues, fixed, chunk, Rows(0, chunk.count), parts)
                continue
            known = list(queues.queues)
            rows, bounds = rows_by_partition(chunk, len(known))
            for queue in known:
                start, stop = bounds[queue.index], bounds[queue.index + 1]
                self._send_rows(queues, queue, chunk, Rows(start, stop, rows), parts)
        return ManyFuture(parts)

    def _send_rows(
        self,
        queues: TopicQueues,
        queue: PartitionQueue | None,
        chunk: Chunk,
        rows: Rows,
        parts: list[Part],
    ) -> None:
        """A few records join the batch that is open; more are cut into batches of their own."""
        settings = self._settings
        few_rows = rows.stop
        while rows.start < rows.stop:
            self._wait_for_room()
            if rows.stop - rows.start <= few_rows:
                few = self._accumulator.extend(queues, queue, chunk, rows, self._acks, time.monotonic())
                if few is not None:
                    self._tell()
                    parts.append(few)
                    return
            place = self._near.take() if self._near is not None else None
            cut = cut_columns(
                chunk.values,
                chunk.keys,
                chunk.headers,
                timestamps=chunk.timestamps,
                start=rows.start,
                stop=rows.stop,
                rows=rows.numbers,
                bytes_target=settings.batch_size,
                codec=settings.codec,
                level=settings.compression_level,
                into=None if place is None else place.memory,
            )
            if len(cut.data) - HEADROOM > BATCH_BYTES_MAX:
                raise BatchTooLarge(
                    f"a record makes a batch of {len(cut.data) - HEADROOM} bytes, and a frame takes {BATCH_BYTES_MAX}",
                    "Set compression_type, or send it in parts",
                    compression_helps=True,
                )
            to = queue if queue is not None else queues.next_sticky()
            state = self._accumulator.new_state(to)
            state.count = cut.count
            first = chunk.timestamps
            state.timestamps = first if isinstance(first, int) else _base_timestamp(cut.data)
            parts.append(Part(state, 0, cut.count))
            near_at = -1 if place is None or isinstance(cut.data, bytearray) else place.position + HEADROOM
            self._accumulator.put(to, cut.data, state, self._acks, time.monotonic(), near_at)
            self._wake()
            rows = rows._replace(start=cut.stop)
            few_rows = cut.count // 4

    def _append(
        self,
        queues: TopicQueues,
        queue: PartitionQueue | None,
        record: tuple[Any, Any, int | None, Any],
        acks: Acks,
    ) -> RecordFuture:
        while True:
            if self._connection.closed:
                raise ClientClosed(_CLOSED)
            future = self._accumulator.append(queues, queue, record, acks, time.monotonic())
            self._tell()
            if future is not None:
                return future
            self._wait_for_room()

    def _tell(self) -> None:
        """Wake the I/O thread, if there is something for it. A batch that was open before is known to it, and one that
        waits for an answer is looked at when that comes: a pass that finds nothing to do costs nearly as much as one
        that sends."""
        if self._accumulator.is_urgent or self._connection.closed:
            self._wake()

    def _wake(self) -> None:
        """Let the I/O thread look at what was added. If that has ended, this fails here, with the rest."""
        if self._connection.closed:
            # By another thread, since this one looked; what was added after that one's farewell has nobody else.
            _farewell(self._sender, self._topics)
            raise ClientClosed(_CLOSED)
        try:
            self._connection.wake()
        except RinglogError as raised:
            # What was raised here holds this call's frames, and futures would hold it: they get the reason itself.
            reason = raised.__cause__
            self._io_ended(reason if isinstance(reason, RinglogError) else raised)
            raise

    def _wait_for_room(self) -> None:
        accumulator = self._accumulator
        if accumulator.has_room():
            return
        if self._connection.on_io_thread():
            raise BufferFull("a callback may not wait for room; produce from another thread")
        patience_s = self._settings.max_block_ms / 1000
        free = accumulator.wait_for(lambda: accumulator.has_room() or self._connection.closed, patience_s)
        if self._connection.closed:
            raise ClientClosed(_CLOSED)
        if not free:
            raise BufferFull(
                f"buffer_memory ({self._settings.buffer_memory} bytes) stayed full for {patience_s:.3g} s; "
                "produce more slowly, or raise it"
            )

    def _named(self, queues: TopicQueues, partition: int) -> PartitionQueue:
        """The queue of a partition that the caller named."""
        known_queues = queues.queues
        if type(partition) is int and 0 <= partition < len(known_queues):
            return known_queues[partition]
        if type(partition) is not int or partition < 0 or self._connection.on_io_thread():
            return queues.queue(partition)  # which says what is wrong
        # It may have been added since we last looked.
        self._connection.forget(queues.name)
        known = self._connection.topic(queues.name, timeout_s=self._settings.max_block_ms / 1000)
        with self._lock:
            queues.add(known)
        return queues.queue(partition)

    def _open(self, topic: str) -> TopicQueues:
        if self._connection.closed:
            raise ClientClosed(_CLOSED)
        if not isinstance(topic, str):
            raise refused_topic(topic)
        if topic.startswith(INTERNAL_PREFIX):
            raise InvalidRequest(
                f"topic {topic!r} is the node's own: nobody else writes to it. Use another name"
            )
        metadata = self._connection.topic(
            topic, create=topic not in self._watch.deleted, timeout_s=self._settings.max_block_ms / 1000
        )
        with self._lock:
            self._watch.deleted.pop(topic, None)
            if topic not in self._topics:
                most = self._settings.max_in_flight_requests_per_connection
                self._topics[topic] = TopicQueues(metadata, most)
            return self._topics[topic]

    # -- waiting ---------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record produced so far stands or has failed; RequestTimeout after `timeout` seconds.
        Those with acks=0 are waited for until the node has received them, or they are given up."""
        self._connection.check_may_wait()
        self._connection.check_runs()
        accumulator = self._accumulator
        with self._lock:
            waiting = list(accumulator.unfinished)
            accumulator.touched.extend(
                queue for queues in self._topics.values() for queue in queues.queues if queue.open is not None
            )
            self._sender.flushing += 1
        try:
            if waiting:
                self._wake()
            until_s = None if timeout is None else time.monotonic() + checked_s(timeout)
            for state in waiting:
                left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
                if not state.done and not state.wait(left_s):
                    count = sum(not one.done for one in waiting)
                    raise RequestTimeout(f"{count} batches were not acknowledged within {timeout} s")
            # With acks=0 they are done for their futures, and may still be on their way.
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            if not accumulator.wait_for(lambda: accumulator.unfinished.keys().isdisjoint(waiting), left_s):
                raise RequestTimeout(f"not all batches were received by the node within {timeout} s")
        finally:
            with self._lock:
                self._sender.flushing -= 1

    def has_unfinished(self) -> bool:
        """Whether records are on their way."""
        return bool(self._accumulator.unfinished)

    def held_up_by(self) -> RinglogError | None:
        """Why the oldest records wait that a node has refused and that are sent again, say DiskFull; None when there
        are none. Nothing has failed yet: it is for who wants to tell somebody why it takes so long."""
        # The queues are the I/O thread's: their batches are copied at once, and only looked at.
        waiting = [b for queue in _queues(self._topics) for b in (*queue.failed, *queue.in_flight)]
        refused = [batch for batch in waiting if batch.error is not None]
        return min(refused, key=lambda batch: batch.deadline_s).error if refused else None

    def close(self, timeout: float | None = None) -> None:
        """Flush, then end the connection. What is not acknowledged within `timeout` seconds fails. Twice is fine."""
        if self._connection.closed:
            return
        # Before anything ends: neither who may not wait, nor a timeout that is none, shall cost records.
        self._connection.check_may_wait()
        if timeout is not None:
            checked_s(timeout)
        try:
            self.flush(timeout)
        except ClientClosed:
            return  # by another thread, meanwhile
        finally:
            last_words.closed(self)
            _abandon(self._connection, self._sender, self._topics)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- on the I/O thread -----------------------------------------------------------------------------------

    def _tick(self, now_s: float) -> float | None:
        sender = self._sender
        for queue, batch in sender.step(now_s):
            self._send(queue, batch, now_s)
        next_s = sender.next_time_s()
        if sender.needs_producer:
            if not self._asked_producer and now_s >= self._ask_producer_at_s:
                self._ask_producer()
            if not self._asked_producer:
                next_s = self._ask_producer_at_s if next_s is None else min(next_s, self._ask_producer_at_s)
        if sender.stale or now_s >= self._watch.calm_until_s:
            look_at_s = self._watch.step(now_s)
            if look_at_s is not None:
                next_s = look_at_s if next_s is None else min(next_s, look_at_s)
        return next_s

    def _send(self, queue: PartitionQueue, batch: Batch, now_s: float) -> None:
        left_s = max(0.001, batch.deadline_s - now_s)
        # The sender, not the producer: a producer that nobody holds can go while answers are due.
        sender = self._sender

        def on_reply(header: Header, body: memoryview) -> None:
            sender.on_reply(queue, batch, ProduceReply.unpack(body))

        def on_error(error: RinglogError) -> None:
            sender.on_error(queue, batch, error, time.monotonic())

        request = Request(
            Api.PRODUCE,
            batch.data,
            on_reply,
            on_error,
            partition=queue.partition,
            flags=Acks.RECEIVED if batch.acks is Acks.NONE else batch.acks,
            timeout_s=min(self._settings.request_timeout_ms / 1000, left_s),
            headroom=True,
            node=queue.node,
            near_at=batch.near_at,
        )
        self._connection.send(request)
        if batch.acks is Acks.NONE:
            sender.let_go(batch)

    def _ask_producer(self) -> None:
        self._asked_producer = True
        here = weakref.ref(self)

        def on_reply(header: Header, body: memoryview) -> None:
            producer = here()
            if producer is not None:
                producer._asked_producer = False
                reply = decode_body(body, InitProducerReply)
                producer._sender.on_producer(ProducerId(reply.producer_id, reply.producer_epoch))

        def on_error(error: RinglogError) -> None:
            producer = here()
            if producer is not None:
                producer._asked_producer = False
                backoff_s = producer._settings.retry_backoff_ms / 1000
                producer._ask_producer_at_s = time.monotonic() + backoff_s

        timeout_s = self._settings.request_timeout_ms / 1000
        body = encode_body(InitProducerRequest())
        self._connection.send(Request(Api.INIT_PRODUCER, body, on_reply, on_error, timeout_s=timeout_s))

    def _io_ended(self, why: RinglogError) -> None:
        self._sender.fail_all(_queues(self._topics), why)


def _let_go(
    connection: Connection, sender: Sender, topics: dict[str, TopicQueues], accumulator: Accumulator
) -> None:
    """Nobody holds the producer any more. Who sends and forgets would not hear of it from futures."""
    if accumulator.unfinished:
        _log.warning("a producer was dropped without close() or flush(), and records may be lost")
    _abandon(connection, sender, topics)


def _abandon(connection: Connection, sender: Sender, topics: dict[str, TopicQueues]) -> None:
    """End the connection, and tell those who still hold futures that nothing more will come."""
    connection.close()
    _farewell(sender, topics)


def _farewell(sender: Sender, topics: dict[str, TopicQueues]) -> None:
    gone = ClientClosed("the producer was closed before the record was acknowledged")
    sender.fail_all(_queues(topics), gone)


def _queues(topics: dict[str, TopicQueues]) -> list[PartitionQueue]:
    return [queue for topic in list(topics.values()) for queue in list(topic.queues)]


def _base_timestamp(data: bytearray | memoryview) -> int:
    return int.from_bytes(data[HEADROOM + 27 : HEADROOM + 35], "big", signed=True)
