"""Asks the leaders of partitions how their logs are, all at once: who is silent keeps nobody from other answers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from queue import Empty, SimpleQueue

from ringlog.client.connection import Connection
from ringlog.client.rounds import by_lane
from ringlog.errors import NodeUnavailable, RequestTimeout, RinglogError
from ringlog.limits import FETCH_PARTITIONS_MAX, REPLY_BODY_BYTES_MAX
from ringlog.model import TopicPartition
from ringlog.net.framing import Api, Header
from ringlog.net.messages import (
    DescribePartitionsReply,
    DescribePartitionsRequest,
    PartitionDescription,
    decode_body,
    encode_body,
)
from ringlog.net.session import Request
from ringlog.net.wire_errors import error_by_number

SILENCE_S = 5.0
"""How long a leader that cannot be reached is waited for: long enough for another one to be elected."""

_SILENT = (NodeUnavailable, RequestTimeout)
_Asked = dict[int, TopicPartition]
"""The partitions of one request, by their ids."""
_Answers = SimpleQueue[tuple[_Asked, memoryview | RinglogError]]


def describe(
    connection: Connection, tps: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, PartitionDescription]:
    """What leaders say of their logs; nothing of a partition whose leader has not said it in time. One that asks for
    patience (a log is being opened) has `timeout_s`, one that cannot be reached SILENCE_S at most."""
    began_s = time.monotonic()
    deadline_s, silence_s = began_s + timeout_s, began_s + min(timeout_s, SILENCE_S)
    rows: dict[TopicPartition, PartitionDescription] = {}
    answers: _Answers = SimpleQueue()
    to_ask, ask_at_s, waiting = list(tps), began_s, 0
    backoff_s = connection.settings.retry_backoff_ms / 1000
    while to_ask or waiting:
        now_s = time.monotonic()
        if now_s >= deadline_s and answers.empty():
            break
        if to_ask and ask_at_s <= now_s < deadline_s:
            asking, to_ask = to_ask, []
            try:
                waiting += _ask(connection, asking, min(deadline_s, now_s + SILENCE_S), answers)
            except RinglogError as error:
                if not error.retriable:
                    raise
                if time.monotonic() < silence_s:
                    to_ask = asking  # nobody knows yet whom to ask
            ask_at_s = now_s + backoff_s
            backoff_s = min(2 * backoff_s, connection.settings.retry_backoff_max_ms / 1000)
        next_s = min(ask_at_s, deadline_s) if to_ask else deadline_s
        try:
            asked, answer = answers.get(timeout=max(next_s - time.monotonic(), 0.0))
        except Empty:
            continue
        waiting -= 1
        if not isinstance(answer, RinglogError):
            rows |= _described(asked, answer)
        elif not answer.retriable:
            raise answer
        elif isinstance(answer, _SILENT) and time.monotonic() >= silence_s:
            continue
        again = [tp for tp in asked.values() if tp not in rows]
        for topic in {tp.topic for tp in again}:
            connection.forget(topic)
        to_ask += again
    return rows


def _ask(connection: Connection, tps: list[TopicPartition], until_s: float, answers: _Answers) -> int:
    """Send a request to each shard that leads some of the partitions; how many were sent."""
    sent = 0
    for lane in by_lane(connection, tps, until_s):
        ids = list(lane)
        for at in range(0, len(ids), FETCH_PARTITIONS_MAX):
            some = ids[at : at + FETCH_PARTITIONS_MAX]
            _send(connection, {number: lane[number] for number in some}, until_s, answers)
            sent += 1
    return sent


def _send(connection: Connection, asked: _Asked, until_s: float, answers: _Answers) -> None:
    def on_reply(header: Header, body: memoryview) -> None:
        answers.put((asked, body))

    def on_error(error: RinglogError) -> None:
        answers.put((asked, error))

    body = encode_body(DescribePartitionsRequest(list(asked)))
    timeout_s = max(until_s - time.monotonic(), 0.001)
    connection.send(
        Request(Api.DESCRIBE_PARTITIONS, body, on_reply, on_error, next(iter(asked)), timeout_s=timeout_s)
    )


def _described(asked: _Asked, body: memoryview) -> dict[TopicPartition, PartitionDescription]:
    """The rows of a reply that are no refusals. Raises those that a retry does not help."""
    rows = {}
    for row in decode_body(body, DescribePartitionsReply, bytes_max=REPLY_BODY_BYTES_MAX).partitions:
        tp = asked.get(row.partition)
        if tp is None:
            continue
        if not row.error:
            rows[tp] = row
            continue
        error = error_by_number(row.error, f"{tp}: it was not described")
        if not error.retriable:
            raise error
    return rows
