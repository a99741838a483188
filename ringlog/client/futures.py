"""What a producer returns: a future is a batch's state and an index, so that a million cost no million objects."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from ringlog.client.waits import checked_s
from ringlog.errors import InvalidRequest, RequestTimeout, RinglogError

NO_OFFSET = -1
NO_DURABILITY = "none"
"""What is known of a record that was sent with acks=0: nobody answers, so nothing is promised."""


class RecordMetadata(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int
    """-1 with acks=0."""
    timestamp: int
    durability: str
    """`received`, `written`, `flushed`, `committed`; `none` with acks=0."""


@dataclass(frozen=True, slots=True)
class ProducedRange:
    """Where records of one `produce_many` stand: `count` of them, from `base_offset` on."""

    topic: str
    partition: int
    base_offset: int
    count: int
    timestamp: int
    """Of the first of them."""
    durability: str


_forks = 0
"""How many forks lie between the first process and this one."""


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class BatchState:
    """What became of one batch, shared by the futures of its records."""

    __slots__ = (
        "_callbacks", "_check_may_wait", "_event", "_forks", "_lock", "base_offset", "count", "done", "durability",
        "error", "partition", "timestamps", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, check_may_wait: Callable[[], None] | None = None) -> None:
        """`check_may_wait` raises on the thread that brings the answer: it would wait for itself."""
        self.topic = topic
        self.partition = partition
        self.done = False
        self.error: RinglogError | None = None
        self.base_offset = NO_OFFSET
        self.count = 0
        self.timestamps: Sequence[int] | int = 0
        """One for each record, or one for all."""
        self.durability = NO_DURABILITY
        self._lock = threading.RLock()
        """Reentrant: a signal handler or a finalizer may flush or close while its thread is in here."""
        self._event: threading.Event | None = None
        self._callbacks: list[tuple[Callable[[Any], object], Any]] | None = None
        self._check_may_wait = check_may_wait
        self._forks = _forks

    def resolve(self, base_offset: int, durability: str, append_time_ms: int = -1) -> None:
        """The batch is in the log."""
        self.base_offset = base_offset
        self.durability = durability
        if append_time_ms >= 0:
            self.timestamps = append_time_ms
        self._finish()

    def fail(self, error: RinglogError) -> None:
        """The batch will not be sent again. One that was let go of is done already, and stays so."""
        if not self.done:
            self.error = error
            self._finish()

    def _finish(self) -> None:
        with self._lock:
            self.done = True
            event, callbacks = self._event, self._callbacks
            # Futures may be kept for long: what is done holds nothing of its client.
            self._event = self._callbacks = self._check_may_wait = None
        if event is not None:
            event.set()
        for callback, future in callbacks or ():
            call_safely(callback, future)

    def wait(self, timeout_s: float | None) -> bool:
        """Whether the batch is done, at the latest when the time is over. Ctrl-C interrupts it. InvalidRequest where
        nobody will ever know: in the child of a fork."""
        self._check_is_ours()
        if timeout_s is not None:
            timeout_s = checked_s(timeout_s)
            if not timeout_s:
                return self.done
        check_may_wait = self._check_may_wait  # once: it is gone when the batch is done
        if check_may_wait is not None:
            check_may_wait()
        with self._lock:
            if self.done:
                return True
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        return self.done or event.wait(timeout_s)

    def then(self, callback: Callable[[Any], object], future: Any) -> None:
        """Call back with the future when the batch is done, at once if it is."""
        if self.done:
            call_safely(callback, future)
            return
        self._check_is_ours()
        pair, first = (callback, future), [(callback, future)]
        with self._lock:
            if not self.done:
                if self._callbacks is None:
                    self._callbacks = first
                else:
                    self._callbacks.append(pair)
                return
        call_safely(callback, future)

    def _check_is_ours(self) -> None:
        """Before the lock is touched, which a thread of the parent may have held when it forked."""
        if self._forks != _forks and not self.done:
            raise InvalidRequest(
                "the record was sent before the fork, and only the parent is told what became of it. "
                "Wait for it there; records that are produced in this process have futures that work"
            )

    def timestamp(self, index: int) -> int:
        return self.timestamps if isinstance(self.timestamps, int) else self.timestamps[index]


def call_safely(callback: Callable[[Any], object], what: Any) -> None:
    """A callback must not stop the thread that serves all others, not even by sys.exit(); its error goes where errors
    of threads go."""
    try:
        callback(what)
    except KeyboardInterrupt:
        raise  # Ctrl-C, on the thread of a user who asked for a call at once
    except BaseException:
        kind, error, trace = sys.exc_info()
        threading.excepthook(threading.ExceptHookArgs((kind, error, trace, threading.current_thread())))


def _until_done(future: RecordFuture | ManyFuture) -> Generator[Any, None, None]:
    """Let a coroutine of asyncio wait for a future, while its event loop does other things."""
    if future.done():
        return
    import asyncio  # only for those who have it anyway

    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake() -> None:
        if not waiter.done():  # whoever waited may have been cancelled
            waiter.set_result(None)

    def tell(_: object) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(tell)
    yield from waiter


class RecordFuture(tuple[BatchState, int]):
    """One record on its way: `result(timeout)` waits for it, and so does `await`. Timeouts are seconds."""

    __slots__ = ()

    def done(self) -> bool:
        """Whether the record stands in the log, or failed."""
        return self[0].done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record stands. Raises what it failed with, or RequestTimeout: then it is still on its way. In a
        callback of its producer, where waiting would never end, a timeout of 0 looks; others are an InvalidRequest, and
        so is every question for a record that was on its way at a fork, in the child."""
        state, index = self
        if not state.done and not state.wait(timeout):
            raise RequestTimeout(
                f"the record was not acknowledged within {timeout} s; it is still on its way"
            )
        if state.error is not None:
            raise state.error.with_traceback(None)  # not on top of the frames of everyone who asked before
        offset = state.base_offset if state.base_offset < 0 else state.base_offset + index
        return RecordMetadata(state.topic, state.partition, offset, state.timestamp(index), state.durability)

    def exception(self, timeout: float | None = None) -> RinglogError | None:
        """What the record failed with, None when it stands."""
        state = self[0]
        if not state.done and not state.wait(timeout):
            raise RequestTimeout(
                f"the record was not acknowledged within {timeout} s; it is still on its way"
            )
        return state.error

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call back with this future, once, when it is done: on the client's I/O thread; on the caller's, at once, when
        it is done already; on the one that closes the producer, or finds its I/O thread ended, for what had not
        left by then. So it must not block, and `result()` may return before it was called."""
        self[0].then(callback, self)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """As `result()`, in a coroutine of asyncio."""
        yield from _until_done(self)
        return self.result(0)

    def __repr__(self) -> str:
        state, index = self
        what = (
            "pending"
            if not state.done
            else "failed"
            if state.error
            else f"offset {state.base_offset + index}"
        )
        return f"<RecordFuture {state.topic}-{state.partition}: {what}>"

    # Two futures of different batches are never equal, and those of one batch differ by their index.
    __hash__ = tuple.__hash__


class Part(NamedTuple):
    """Records of one `produce_many` that went into one batch, perhaps behind those of others."""

    state: BatchState
    first: int
    records: int

    def stands(self) -> ProducedRange:
        """Where they stand."""
        state, first, records = self
        base = state.base_offset if state.base_offset < 0 else state.base_offset + first
        return ProducedRange(
            state.topic, state.partition, base, records, state.timestamp(first), state.durability
        )


class ManyFuture:
    """All records of one `produce_many` on their way: `result(timeout)` waits for them, and so does `await`."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts

    @property
    def states(self) -> list[BatchState]:
        """The batches that they are in."""
        return [part.state for part in self.parts]

    def done(self) -> bool:
        """Whether every record stands in the log, or failed."""
        return all(state.done for state in self.states)

    def exception(self, timeout: float | None = None) -> RinglogError | None:
        """What the first of the records that failed failed with, None when all stand."""
        self._wait(timeout)
        return next((state.error for state in self.states if state.error is not None), None)

    def result(self, timeout: float | None = None) -> list[ProducedRange]:
        """Where the records stand, batch by batch; raises the first error when any failed."""
        error = self.exception(timeout)
        if error is not None:
            raise error.with_traceback(None)
        return [part.stands() for part in self.parts]

    def add_done_callback(self, callback: Callable[[ManyFuture], object]) -> None:
        """Call back with this future, once, when all are done: on the client's I/O thread; on the caller's, at once, if
        all are done already; on the one that closes the producer, if what had not left was the last. Do not block."""
        missing = len(self.parts)
        lock = threading.Lock()

        def one_done(state: BatchState) -> None:
            nonlocal missing
            with lock:
                missing -= 1
                last = missing == 0
            if last:
                callback(self)

        for state in self.states:
            state.then(one_done, state)
        if not self.parts:
            call_safely(callback, self)

    def __await__(self) -> Generator[Any, None, list[ProducedRange]]:
        """As `result()`, in a coroutine of asyncio."""
        yield from _until_done(self)
        return self.result(0)

    def _wait(self, timeout: float | None) -> None:
        until_s = None if timeout is None else time.monotonic() + checked_s(timeout)
        for state in self.states:
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            if not state.done and not state.wait(left_s):
                raise RequestTimeout(f"not all records were acknowledged within {timeout} s")
