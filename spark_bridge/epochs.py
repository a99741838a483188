"""Which epochs of a streaming query are in the log: kept by the node, as offsets of a group named after the query.

When an epoch is committed, the group `spark-sink-QUERY` gets, for each partition that the epoch wrote to, the offset
behind its last record, with the epoch's number as metadata. All tasks have flushed by then, so a single such offset
proves that the whole epoch is in the log. `ringlog group describe spark-sink-QUERY` shows it, `ringlog group delete`
forgets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from ringlog.client.admin import Admin
from ringlog.client.commits import OffsetAndMetadata
from ringlog.client.consumer import Consumer
from ringlog.errors import EpochMismatch
from ringlog.limits import SINK_MARKS_MAX
from ringlog.model import TopicPartition
from spark_bridge.options import PATIENCE_MS
from spark_bridge.patience import patiently

_PATIENCE_S = PATIENCE_MS / 1000


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands beside the offsets of a committed epoch."""

    epoch: int
    records: int
    """Of all tasks: an epoch that comes again must have as many."""


_mark_decoder = msgspec.json.Decoder(Mark)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One micro-batch of one query."""

    query_id: str
    number: int

    @property
    def group_id(self) -> str:
        return f"spark-sink-{self.query_id}"


def last_mark(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mark | None:
    """The newest epoch that a group's offsets tell of.

    >>> note = OffsetAndMetadata(7, '{"epoch":3,"records":7}')
    >>> last_mark({TopicPartition("t", 0): note, TopicPartition("t", 1): OffsetAndMetadata(7, "by hand")})
    Mark(epoch=3, records=7)
    """
    marks = []
    for found in offsets.values():
        try:
            marks.append(_mark_decoder.decode(found.metadata))
        except msgspec.DecodeError:
            continue  # set by hand, with `ringlog group reset`: it tells of no epoch
    return max(marks, key=lambda mark: mark.epoch, default=None)


def _known_mark(epoch: Epoch, bootstrap: str | None, patience_s: float) -> Mark | None:
    """What the node remembers of the query. It is asked again while it is being restarted: not to know is no answer."""
    with Admin(bootstrap) as admin:
        return last_mark(
            patiently(lambda timeout_s: admin.group_offsets(epoch.group_id, timeout=timeout_s), patience_s)
        )


def is_committed(epoch: Epoch, bootstrap: str | None, patience_s: float = _PATIENCE_S) -> bool:
    """Whether the epoch is in the log already. EpochMismatch when a later one is, too: then the checkpoint was set
    back, and nobody can tell what this epoch holds."""
    mark = _known_mark(epoch, bootstrap, patience_s)
    if mark is not None and mark.epoch > epoch.number:
        raise EpochMismatch(
            f"epoch {epoch.number} of query {epoch.query_id} comes after epoch {mark.epoch} was committed: its "
            f"checkpoint was set back. To write from it again, with repeats: ringlog group delete {epoch.group_id}"
        )
    return mark is not None and mark.epoch == epoch.number


def commit(
    epoch: Epoch,
    records: int,
    ends: Mapping[TopicPartition, int],
    bootstrap: str | None,
    patience_s: float = _PATIENCE_S,
) -> None:
    """Note durably that all records of an epoch are flushed; `ends` are the offsets behind the last ones."""
    if not ends:
        return  # an epoch without records adds nothing when it comes again
    note = msgspec.json.encode(Mark(epoch.number, records)).decode()
    some = sorted(ends.items())[:SINK_MARKS_MAX]
    with Consumer(bootstrap, epoch.group_id, enable_auto_commit=False) as consumer:
        marks: dict[TopicPartition | tuple[str, int], int | OffsetAndMetadata] = {
            tp: OffsetAndMetadata(end, note) for tp, end in some
        }
        patiently(lambda timeout_s: consumer.commit(marks, timeout_ms=timeout_s * 1000), patience_s)


def check_replay(epoch: Epoch, records: int, bootstrap: str | None, patience_s: float = _PATIENCE_S) -> None:
    """An epoch that was skipped must be the one that was committed: as many records, at least."""
    mark = _known_mark(epoch, bootstrap, patience_s)
    if mark is not None and (mark.epoch, mark.records) != (epoch.number, records):
        raise EpochMismatch(
            f"epoch {epoch.number} of query {epoch.query_id} was committed with {mark.records} records, and now "
            f"comes with {records}: its checkpoint was changed, or the query is not deterministic. Nothing was "
            f"added. To write it again, with repeats: ringlog group delete {epoch.group_id}"
        )


def ends_of(tasks: Iterable[Mapping[TopicPartition, int]]) -> dict[TopicPartition, int]:
    """The furthest end of each partition.

    >>> ends_of([{TopicPartition("t", 0): 7}, {TopicPartition("t", 0): 9, TopicPartition("t", 1): 2}])
    {TopicPartition(topic='t', partition=0): 9, TopicPartition(topic='t', partition=1): 2}
    """
    ends: dict[TopicPartition, int] = {}
    for task in tasks:
        for tp, end in task.items():
            ends[tp] = max(end, ends.get(tp, 0))
    return ends
