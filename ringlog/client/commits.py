"""Commits and asks for a group's offsets, through its coordinator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ringlog.client.connection import Connection
from ringlog.client.futures import call_safely
from ringlog.client.group_driver import GroupDriver
from ringlog.client.membership import grouped
from ringlog.client.metadata import LOOK_AGAIN
from ringlog.client.offsets import checked_offset
from ringlog.client.settings import check_text
from ringlog.errors import CorruptFrame, InvalidRequest, MemberFenced, RinglogError
from ringlog.limits import OFFSET_METADATA_CHARS_MAX
from ringlog.model import TopicPartition
from ringlog.net.framing import Api, Header
from ringlog.net.group_messages import (
    LEAVE,
    NO_OFFSET,
    OFFSETS_TOPIC,
    OffsetCommitReply,
    OffsetCommitRequest,
    OffsetFetchReply,
    OffsetFetchRequest,
    OffsetToCommit,
)
from ringlog.net.messages import decode_body, encode_body
from ringlog.net.session import Request
from ringlog.net.wire_errors import error_by_number

T = TypeVar("T")


class OffsetAndMetadata(NamedTuple):
    """How far a group has come: the offset of the next record, and what was noted with it."""

    offset: int
    metadata: str = ""


Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, RinglogError | None], None]


class Commits:
    """The offsets of one group, as one of its consumers reads and writes them."""

    def __init__(self, connection: Connection, group: GroupDriver) -> None:
        self._connection = connection
        self._group = group
        self._sequence = 0
        self._lock = threading.Lock()

    def commit(self, offsets: Offsets, timeout_s: float) -> None:
        """Commit and wait until it is durable. MemberFenced names partitions that are not this member's any more."""
        deadline_s = time.monotonic() + timeout_s
        left = dict(offsets)
        while left:
            request = self._request(left)
            reply = self._connection.call(
                Api.OFFSET_COMMIT,
                request,
                OffsetCommitReply,
                partition=self._group.home(timeout_s),
                topic=OFFSETS_TOPIC,
                timeout_s=max(deadline_s - time.monotonic(), 0.001),
            )
            fenced = _raise_others(left, reply)
            again = self._held(fenced, request.member_epoch) if time.monotonic() < deadline_s else []
            if len(again) < len(fenced):
                raise _not_ours(fenced)
            # The member has rejoined meanwhile and has these again: what it did with them counts.
            left = {tp: left[tp] for tp in again}

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Commit without waiting; the callback is called on the I/O thread, or at once on the caller's when there is
        nothing to commit or the client is closed. Nothing is retried: a later commit says more."""
        if not offsets:
            _call_back(callback, offsets, None)
            return
        connection = self._connection

        def on_reply(header: Header, body: memoryview) -> None:
            error: RinglogError | None
            try:
                fenced = _raise_others(offsets, decode_body(body, OffsetCommitReply))
                error = _not_ours(fenced) if fenced else None
            except RinglogError as wrong:
                error = wrong
            done(error)

        def done(error: RinglogError | None) -> None:
            if isinstance(error, LOOK_AGAIN):
                connection.look_again(OFFSETS_TOPIC)
            _call_back(callback, offsets, error)

        timeout_s = self._connection.settings.request_timeout_ms / 1000
        body = encode_body(self._request(offsets))
        home = self._group.home(timeout_s)
        self._connection.send(Request(Api.OFFSET_COMMIT, body, on_reply, done, home, timeout_s=timeout_s))

    def committed(
        self, tps: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None: nothing."""
        wanted = list(tps)
        if not wanted:
            return {}
        reply = self._connection.call(
            Api.OFFSET_FETCH,
            OffsetFetchRequest(self._group.group_id, grouped(wanted)),
            OffsetFetchReply,
            partition=self._group.home(timeout_s),
            topic=OFFSETS_TOPIC,
            timeout_s=timeout_s,
        )
        found = {TopicPartition(row.topic, row.partition): row for row in reply.offsets}
        rows_for(wanted, [tp for tp in wanted if tp in found])
        return {
            tp: None
            if found[tp].offset == NO_OFFSET
            else OffsetAndMetadata(found[tp].offset, found[tp].metadata)
            for tp in wanted
        }

    def _request(self, offsets: Offsets) -> OffsetCommitRequest:
        with self._lock:
            self._sequence += 1
            sequence = self._sequence
        epoch = self._group.look(lambda member: member.epoch) if self._group.running else LEAVE
        if self._group.running and epoch == 0:
            raise MemberFenced("the consumer is no member of its group now; poll() joins it again")
        return OffsetCommitRequest(
            self._group.group_id,
            self._group.member_id,
            epoch,
            sequence,
            [OffsetToCommit(*tp, offset, metadata) for tp, (offset, metadata) in offsets.items()],
        )

    def _held(self, tps: list[TopicPartition], epoch: int) -> list[TopicPartition]:
        """Those that the member holds at another epoch than it committed with."""
        moved = self._group.look(lambda member: member.epoch != epoch)
        return self._group.look(lambda member: [tp for tp in tps if tp in member.held]) if moved else []


def _call_back(callback: CommitCallback | None, offsets: Offsets, error: RinglogError | None) -> None:
    """One that raises must not end the I/O thread, and the consumer with it."""
    if callback is not None:
        call_safely(lambda what: callback(*what), (offsets, error))


def check_offsets(offsets: Mapping[TopicPartition, object]) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a user wants to commit: an offset for each partition, or an OffsetAndMetadata."""
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, given in offsets.items():
        offset, metadata = given if isinstance(given, tuple) and len(given) == 2 else (given, "")
        if not isinstance(metadata, str) or len(metadata) > OFFSET_METADATA_CHARS_MAX:
            raise InvalidRequest(f"{tp}: metadata is a str of at most {OFFSET_METADATA_CHARS_MAX} characters")
        check_text(metadata=metadata)
        checked[tp] = OffsetAndMetadata(checked_offset(offset), metadata)
    return checked


def _raise_others(offsets: Offsets, reply: OffsetCommitReply) -> list[TopicPartition]:
    """The partitions that are not the member's; other errors are raised."""
    fenced: list[TopicPartition] = []
    for tp, number in zip(offsets, rows_for(offsets, reply.errors), strict=True):
        if number:
            error = error_by_number(number, f"{tp}: its offset was not committed")
            if not isinstance(error, MemberFenced):
                raise error
            fenced.append(tp)
    return fenced


def rows_for(asked: Collection[object], rows: Sequence[T]) -> Sequence[T]:
    """The rows of a reply, one for each thing that was asked for; CorruptFrame when they are not as many."""
    if len(rows) != len(asked):
        raise CorruptFrame("body", 32, f"{len(rows)} rows answer for {len(asked)} partitions")
    return rows


def _not_ours(tps: list[TopicPartition]) -> MemberFenced:
    names = ", ".join(str(tp) for tp in tps[:5])
    return MemberFenced(f"{names}: given to another member since. Its records will be read again there")
