"""A few replicas in memory, moved by hand: for tests that say what happens step by step."""

from __future__ import annotations

from ringlog.errors import RinglogError
from ringlog.log.epochs import EpochHistory
from ringlog.replication.follower import Append, BatchSpan, BeginAt, Truncate
from ringlog.replication.leader import BeginsLater, Diverged, Serve
from ringlog.replication.messages import Part, Want
from ringlog.replication.replica import Replica
from ringlog.replication.view import EpochEnd, PartitionView

PARTITION = 7


class MemoryLog:
    """A log of batches without content."""

    def __init__(self, batches: list[BatchSpan] | None = None) -> None:
        self.batches: list[BatchSpan] = []
        self.start_offset = 0
        self.epochs = EpochHistory()
        self._end = 0
        self.add(batches or [])
        self.held_offset = self._end
        self.hole_offset: int | None = None

    def add(self, batches: list[BatchSpan]) -> None:
        for batch in batches:
            self.batches.append(batch)
            self.epochs.note(batch.leader_epoch, batch.base_offset)
            self._end = batch.last_offset + 1

    @property
    def durable_start_offset(self) -> int:
        return self.start_offset

    @property
    def end_offset(self) -> int:
        return self._end

    @property
    def readable_offset(self) -> int:
        return self._end

    @property
    def last_epoch(self) -> int:
        return self.epochs.latest

    def epoch_below(self, offset: int) -> int:
        return self.epochs.latest_below(offset)

    def end_of(self, epoch: int) -> EpochEnd | None:
        found = self.epochs.end_of(epoch, self._end)
        return EpochEnd(*found) if found is not None else None

    def append(self, epoch: int, records: int) -> None:
        """As a leader does."""
        self.add([BatchSpan(self._end, self._end + records - 1, epoch)])

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.epochs.cut_end(offset)
        self._end = self.batches[-1].last_offset + 1 if self.batches else self.start_offset
        self.held_offset = min(self.held_offset, self._end)

    def begin_at(self, offset: int) -> None:
        """Everything is deleted; the log goes on from here."""
        self.batches, self.epochs = [], EpochHistory()
        self.start_offset = self._end = self.held_offset = offset

    def delete_below(self, offset: int) -> None:
        """As retention does."""
        self.batches = [batch for batch in self.batches if batch.last_offset >= offset]
        self.start_offset = offset
        self.epochs.cut_start(offset)

    def flush(self) -> None:
        self.held_offset = self._end


def spans(*runs: tuple[int, int, int]) -> list[BatchSpan]:
    """Batches, each as (base offset, last offset, epoch)."""
    return [BatchSpan(*run) for run in runs]


class Node:
    """One replica and its log."""

    def __init__(self, node: int, log: MemoryLog | None = None) -> None:
        self.node = node
        self.node_epoch = node * 100
        self.log = log or MemoryLog()
        self.replica = Replica(node, PARTITION)

    def follow(self, view: PartitionView, now_ms: int = 0) -> bool:
        return self.replica.follow(view, self.log, self.node_epoch, now_ms)

    def want(self) -> Want:
        assert self.replica.follower is not None
        return self.replica.follower.want(self.log, 1000)


def fetch(follower: Node, leader: Node, now_ms: int = 0) -> str:
    """One fetch there and back; what came of it, in words."""
    want = follower.want()
    return apply(follower, *answer(leader, follower, want, now_ms))


def answer(leader: Node, follower: Node, want: Want, now_ms: int) -> tuple[Part, list[BatchSpan]]:
    """The leader's part of a fetch."""
    replica, log = leader.replica, leader.log
    verdict = replica.must_lead().fetched(follower.node, follower.node_epoch, want, log, now_ms)
    assert replica.view is not None
    facts = (want.fetch_offset, replica.high_watermark, log.start_offset)
    is_free = not replica.must_lead().counts_on(follower.node)
    part = Part(PARTITION, 0, replica.view.leader_epoch, *facts, is_free=is_free)
    if isinstance(verdict, Diverged):
        return Part(PARTITION, 0, replica.view.leader_epoch, *facts, 0, *verdict.end), []
    if isinstance(verdict, BeginsLater):
        return part, []
    assert isinstance(verdict, Serve)
    return part, [batch for batch in log.batches if batch.base_offset >= verdict.offset]


def apply(follower: Node, part: Part, batches: list[BatchSpan]) -> str:
    """The follower's part of a fetch."""
    role, log = follower.replica.follower, follower.log
    if role is None:
        return "no follower any more"
    action = role.take(part, batches, log)
    if isinstance(action, Truncate):
        log.truncate(action.offset)
        return f"cut to {action.offset}"
    if isinstance(action, BeginAt):
        log.begin_at(action.offset)
        return f"begun anew at {action.offset}"
    if isinstance(action, Append):
        log.add(batches)
        role.appended(part, log)
        return f"appended up to {log.end_offset}"
    return "nothing new"


def refusal(call: object) -> str:
    """The code of the error that a call raises."""
    try:
        call()  # type: ignore[operator]
    except RinglogError as error:
        return error.code
    return "taken"
