"""Sends lines for `ringlog produce`: reads what is there, hands it over as one chunk, and counts the answers."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, BinaryIO

from cli.acked import least_durable
from cli.clients import open_admin, open_producer
from cli.counted import counted
from cli.held_up import telling_what_holds_up
from cli.output import print_json
from cli.partly_done import tell_with_failure
from cli.produce_input import BadLine, Chunk, Headers, json_chunks, lines_of, plain_chunks
from cli.screen import late_bar, say_above_bar
from cli.topic_errors import naming_near_topics, words_if_new
from ringlog.errors import BatchTooLarge, InvalidRecord, InvalidRequest, RinglogError

if TYPE_CHECKING:
    from ringlog import Producer
    from ringlog.client.futures import ManyFuture, RecordFuture, RecordMetadata

READ_BYTES = 1 << 20
CHUNKS_WAITING_MAX = 64
DELIVERY_TIMEOUT_S = 120.0
FLUSH_TIMEOUT_S = 150.0
"""Longer than the producer's own delivery timeout, which speaks first."""
LINGER_MS = 5
QUIET_S = 1.0
"""Progress is shown only when it takes longer."""
_SAID_NO = (BatchTooLarge, InvalidRecord)


@dataclass(frozen=True, slots=True)
class ProducePlan:
    """What the user asked for."""

    topic: str
    key_separator: bytes | None
    headers: Headers
    partition: int | None
    acks: str
    codec: str
    as_json: bool
    by_key: bool = False
    """A "partition" in JSON is left aside."""


def produce_lines(bootstrap: str, plan: ProducePlan, file: BinaryIO) -> None:
    """Send all of a file, then say what was acknowledged, also when not all of it could be."""
    settings = {
        "acks": plan.acks,
        "compression_type": plan.codec,
        "linger_ms": LINGER_MS,
        "delivery_timeout_ms": int(DELIVERY_TIMEOUT_S * 1000),
    }
    if plan.acks == "0":
        settings["enable_idempotence"] = False  # nobody answers, so nobody can be asked again
    began_s = time.monotonic()
    with (
        naming_near_topics(plan.topic, lambda: open_admin(bootstrap)),
        open_producer(bootstrap, **settings) as producer,
        telling_what_holds_up(producer, DELIVERY_TIMEOUT_S),
    ):
        sending = Sending(producer, plan.topic)
        try:
            _send_all(sending, plan, file, bootstrap)
        except (RinglogError, KeyboardInterrupt) as ended:
            # Whatever ended it, what was acknowledged is told: it will not be taken back.
            if isinstance(ended, RinglogError):
                sending.wait_for_the_rest()
            sending.take_what_is_there()
            if sending.sent:
                _report(sending, plan, time.monotonic() - began_s)
            tell_with_failure(acknowledged=sending.acknowledged)
            raise
        _report(sending, plan, time.monotonic() - began_s)


def _send_all(sending: Sending, plan: ProducePlan, file: BinaryIO, bootstrap: str) -> None:
    with late_bar(QUIET_S) as show:
        try:
            for chunk in _chunks(plan, file):
                is_first = not sending.sent
                words = words_if_new(plan.topic, lambda: open_admin(bootstrap)) if is_first else ""
                with _naming_by_key(plan, chunk):
                    sending.send(chunk)
                if words:
                    say_above_bar(words)
                show(f"{sending.acknowledged:,} of {sending.sent:,} records acknowledged")
        except BadLine as wrong:
            sending.finish()
            hint = " Without --json a line is sent as it is." if plan.as_json else ""
            raise InvalidRequest(f"{wrong}. {_sent_before(sending, plan)}{hint}") from None
        sending.finish()


@contextmanager
def _naming_by_key(plan: ProducePlan, chunk: Chunk) -> Iterator[None]:
    """A partition that stands in the input, and that the topic does not have, can be left aside."""
    try:
        yield
    except InvalidRequest as refused:
        is_of_input = plan.as_json and chunk.partition != plan.partition
        if is_of_input and str(refused).startswith(f"partition {chunk.partition}:"):
            raise InvalidRequest(f'{refused}, or leave "partition" aside: --by-key') from None
        raise


def _sent_before(sending: Sending, plan: ProducePlan) -> str:
    """What became of the lines before a bad one: who mends it must know where to go on."""
    if not sending.sent:
        return "Nothing was sent."
    how = f": {counted(sending.acknowledged, 'record')} acknowledged" if plan.acks != "0" else ""
    return f"What stands before it was sent{how}."


def _chunks(plan: ProducePlan, file: BinaryIO) -> Iterator[Chunk]:
    lines = lines_of(_pieces(file))
    if plan.as_json:
        return json_chunks(
            lines,
            now_ms=lambda: time.time_ns() // 1_000_000,
            headers=plan.headers,
            partition=plan.partition,
            by_key=plan.by_key,
        )
    return plain_chunks(
        lines, key_separator=plan.key_separator, headers=plan.headers, partition=plan.partition
    )


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """What is there, without waiting for more: a line that somebody types is sent when it is typed."""
    if file.isatty():
        print("Type records, one per line; Ctrl-D ends.", file=sys.stderr)
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)
    while piece := read(READ_BYTES):
        yield piece


class _EachFuture:
    """Records that go one by one, because only columns of Arrow can carry headers together."""

    def __init__(self) -> None:
        self.futures: list[RecordFuture] = []

    def done(self) -> bool:
        return all(future.done() for future in self.futures)

    def result(self, timeout: float) -> list[RecordMetadata]:
        return [future.result(timeout) for future in self.futures]


def _stands(future: ManyFuture | _EachFuture) -> tuple[int, set[str]]:
    """How many records of a future that is done stand in the log, and how durable: some of them may have failed."""
    if isinstance(future, _EachFuture):
        each = [one.result(0) for one in future.futures if one.exception(0) is None]
        return len(each), {one.durability for one in each}
    parts = [part for part in future.parts if part.state.error is None]
    return sum(part.records for part in parts), {part.state.durability for part in parts}


def _refused(future: ManyFuture | _EachFuture) -> int:
    """How many records of a future that is done are in no log: the node looked at them, and said no."""
    if isinstance(future, _EachFuture):
        return sum(isinstance(one.exception(0), _SAID_NO) for one in future.futures)
    return sum(part.records for part in future.parts if isinstance(part.state.error, _SAID_NO))


class Sending:
    """Chunks on their way, oldest first, and how many of their records were acknowledged."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._waiting: deque[ManyFuture | _EachFuture] = deque()
        self.sent = 0
        self.acknowledged = 0
        self.refused = 0
        self.durability = ""

    def send(self, chunk: Chunk) -> None:
        """Hand a chunk over. Waits when too much is on its way; raises what an earlier one failed with."""
        try:
            self._hand_over(chunk)
        except BatchTooLarge as wrong:  # more than a frame takes
            advice = "Use --codec, or send it in parts" if wrong.compression_helps else "Send it in parts"
            raise BatchTooLarge(wrong.what, advice) from None
        while self._waiting and (len(self._waiting) > CHUNKS_WAITING_MAX or self._waiting[0].done()):
            self._take_oldest()

    def _hand_over(self, chunk: Chunk) -> None:
        count = len(chunk.values)
        if chunk.headers is None:
            many = self._producer.produce_many(
                self._topic, chunk.values, chunk.keys, timestamps=chunk.timestamps, partition=chunk.partition
            )
            self._waiting.append(many)
            self.sent += count
            return
        keys = chunk.keys or repeat(None, count)
        times: Iterable[int | None] = chunk.timestamps or repeat(None, count)
        each = _EachFuture()
        self._waiting.append(each)  # before the first: those before one that is refused are on their way
        for row in zip(chunk.values, keys, chunk.headers, times, strict=True):
            each.futures.append(self._producer.produce(self._topic, *row, chunk.partition))
            self.sent += 1

    def finish(self) -> None:
        """Wait for every answer; raises the first failure."""
        self._producer.flush(FLUSH_TIMEOUT_S)
        while self._waiting:
            self._take_oldest()

    def wait_for_the_rest(self) -> None:
        """After a failure: what was sent before it is on its way, and who is told how much stands must be told all."""
        try:
            self._producer.flush(FLUSH_TIMEOUT_S)
        except RinglogError:
            return  # the first failure is being told already, and what has no answer is counted so

    def take_what_is_there(self) -> None:
        """Count the answers that have come, after a failure or Ctrl-C."""
        for future in self._waiting:
            if future.done():
                self._count(future)
        self._waiting.clear()

    def _take_oldest(self) -> None:
        future = self._waiting[0]
        try:
            future.result(FLUSH_TIMEOUT_S)
        except BatchTooLarge as wrong:  # more than the topic takes
            advice = f"ringlog topic alter {self._topic} --config max.message.bytes=BYTES"
            raise BatchTooLarge(wrong.what, f"Use --codec, or let it take more: {advice}") from None
        self._waiting.popleft()  # one that failed stays: what of it stands is counted at the end
        self._count(future)

    def _count(self, future: ManyFuture | _EachFuture) -> None:
        count, words = _stands(future)
        self.acknowledged += count
        self.refused += _refused(future)
        self.durability = least_durable({self.durability, *words})


def _report(sending: Sending, plan: ProducePlan, seconds: float) -> None:
    if plan.as_json:
        found = {
            "topic": plan.topic,
            "records": sending.sent,
            "acknowledged": 0 if plan.acks == "0" else sending.acknowledged,
            "durability": sending.durability or None,
            "seconds": round(seconds, 6),
        }
        print_json(found)
        return
    if not sending.sent:
        print("ringlog: there was nothing to send.", file=sys.stderr)
    elif plan.acks == "0":
        print(
            f"{counted(sending.sent, 'record')} sent; with --acks 0 nobody says what became of them.",
            file=sys.stderr,
        )
    else:
        unknown = sending.sent - sending.acknowledged - sending.refused
        rest = f"; {counted(sending.refused, 'record')} refused" if sending.refused else ""
        rest += f"; {counted(unknown, 'record')} more may be in the log or not" if unknown else ""
        how = f", {sending.durability}" if sending.durability else ""
        print(
            f"{counted(sending.acknowledged, 'record')} acknowledged{how}, in {seconds:.2f} s{rest}",
            file=sys.stderr,
        )
