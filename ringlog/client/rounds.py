"""Asks shards about partitions: a request for each lane, again for what may succeed later, until time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from ringlog.client.assigned import Place
from ringlog.client.connection import Connection
from ringlog.client.lookups import place_of
from ringlog.client.metadata import LOOK_AGAIN
from ringlog.errors import RequestTimeout, RinglogError, UnknownTopic
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import Body
from ringlog.net.wire_errors import error_by_number


class Row(Protocol):
    """What a reply says of one partition."""

    @property
    def partition(self) -> int: ...

    @property
    def error(self) -> int: ...


R = TypeVar("R", bound=Row)
S = TypeVar("S", bound=Body)


def ask_partitions(
    connection: Connection,
    wanted: Mapping[TopicPartition, int],
    api: Api,
    make_request: Callable[[list[tuple[int, int]]], msgspec.Struct],
    reply_type: type[S],
    rows_of: Callable[[S], Sequence[R]],
    *,
    failed: str,
    timeout_s: float,
) -> dict[TopicPartition, R]:
    """The row of each partition. `make_request` is given node-wide ids with what is wanted of each; `failed` says in an
    error what did not happen. Asking twice must do no harm."""
    deadline_s = time.monotonic() + timeout_s
    answers: dict[TopicPartition, R] = {}
    left = dict(wanted)
    backoff_s = connection.settings.retry_backoff_ms / 1000
    while left:
        error: RinglogError = RequestTimeout(f"{next(iter(left))}: {failed} within {timeout_s:.3g} s. Retry")
        try:
            for some in by_lane(connection, left, deadline_s):
                reply = connection.call(
                    api,
                    make_request([(number, left[tp]) for number, tp in some.items()]),
                    reply_type,
                    partition=next(iter(some)),
                    timeout_s=_left_s(deadline_s),
                    on_retry=not_when_stale,
                )
                for row in rows_of(reply):
                    tp = some.get(row.partition)
                    if tp is None or tp not in left:
                        continue
                    if not row.error:
                        answers[tp] = row
                        del left[tp]
                        continue
                    error = error_by_number(row.error, f"{tp}: {failed}")
                    if not error.retriable:
                        raise error
        except LOOK_AGAIN as stale:
            error = stale
        if left:
            if time.monotonic() + backoff_s >= deadline_s:
                raise error
            for tp in left:
                connection.forget(tp.topic)
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, connection.settings.retry_backoff_max_ms / 1000)
    return answers


def places(
    connection: Connection, tps: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, Place]:
    """Where partitions are served. UnknownTopic for one that is not there."""
    deadline_s = time.monotonic() + timeout_s
    found: dict[TopicPartition, Place] = {}
    for tp in tps:
        left_s = _left_s(deadline_s)
        place = place_of(connection.topic(tp.topic, timeout_s=left_s), tp.partition)
        if place is None:
            # It may have been added since we last looked.
            connection.forget(tp.topic)
            topic = connection.topic(tp.topic, timeout_s=left_s)
            place = place_of(topic, tp.partition)
            if place is None:
                count = len(topic.partitions)
                raise UnknownTopic(f"there is no {tp}: topic '{tp.topic}' has partitions 0 to {count - 1}")
        found[tp] = place
    return found


def not_when_stale(error: RinglogError) -> None:
    """The same question would get the same answer: look up first who can answer it."""
    if isinstance(error, LOOK_AGAIN):
        raise error


def by_lane(
    connection: Connection, tps: Iterable[TopicPartition], deadline_s: float
) -> list[dict[int, TopicPartition]]:
    """Partitions, by their ids, for each shard that leads some of them."""
    lanes: dict[int, dict[int, TopicPartition]] = {}
    for tp, place in places(connection, tps, _left_s(deadline_s)).items():
        lanes.setdefault(place.lane, {})[place.partition] = tp
    return list(lanes.values())


def _left_s(deadline_s: float) -> float:
    return max(deadline_s - time.monotonic(), 0.001)
