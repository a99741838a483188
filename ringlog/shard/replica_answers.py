"""Answers to other nodes' fetches: reads what a plan says, from memory or disk, and lends it to who sends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ringlog.errors import NotLeader, RinglogError
from ringlog.limits import FETCH_PARTITIONS_MAX, REPLICA_PARTITION_BYTES
from ringlog.log.events import disk_error
from ringlog.log.reading import Slices
from ringlog.log.store import LogStore
from ringlog.net.wire_errors import number_of
from ringlog.replication.leader import Diverged, Serve
from ringlog.replication.messages import Part, ReplicaFetched, Want, encode_fetched
from ringlog.replication.serving import Entry, Plan
from ringlog.shard.asker import Asker
from ringlog.shard.hosting import HostedPartition, Hosting

Lend = Callable[[Asker, bytes, list[Slices]], None]
PutBack = Callable[[Iterable[int]], None]


class _Answer:
    """One answer while its data is being read."""

    __slots__ = ("asker", "bytes_left", "parts", "plan", "put_back", "reading", "slices")

    def __init__(self, asker: Asker, plan: Plan, put_back: PutBack) -> None:
        self.asker = asker
        self.plan = plan
        self.put_back = put_back
        self.bytes_left = plan.fetch.bytes_max
        self.parts: list[Part] = []
        self.slices: list[Slices] = []
        self.reading = 0
        """Reads from disk that are under way."""


class ReplicaAnswers:
    """Makes the answers of a shard to followers."""

    def __init__(self, store: LogStore, hosting: Hosting, lend: Lend) -> None:
        self._store = store
        self._hosting = hosting
        self._lend = lend

    def begin(self, asker: Asker, plan: Plan, put_back: PutBack) -> None:
        """Answer a plan, at once or when its reads are done. What finds no room is put back."""
        answer = _Answer(asker, plan, put_back)
        answer.reading += 1  # keeps reads that are done at once from ending it
        for at, entry in enumerate(plan.entries):
            if answer.bytes_left <= 0 or at >= FETCH_PARTITIONS_MAX:
                put_back([later.want.partition for later in plan.entries[at:]])
                break
            self._add(answer, entry, len(plan.entries) - at)
        self._read_done(answer)

    def _add(self, answer: _Answer, entry: Entry, entries_left: int) -> None:
        want, verdict = entry
        if isinstance(verdict, RinglogError):
            answer.parts.append(Part(want.partition, number_of(verdict), -1, want.fetch_offset, -1, -1))
            return
        try:
            hosted = self._hosting.find_led(want.partition)
            if isinstance(verdict, Serve):
                self._read(answer, hosted, want, share_of(want.bytes_max, answer.bytes_left, entries_left))
            else:
                end = verdict.end if isinstance(verdict, Diverged) else (-1, -1)
                answer.parts.append(_part(hosted, want, answer.plan.fetch.node, 0, *end))
        except RinglogError as error:
            self._failed(answer, want, error)

    def _read(self, answer: _Answer, hosted: HostedPartition, want: Want, budget: int) -> None:
        slices = self._store.read_tail(hosted.name, want.fetch_offset, budget, ahead=True)
        if slices is not None:
            self._served(answer, hosted, want, slices)
            return
        answer.reading += 1
        answer.bytes_left -= budget

        def done(slices: Slices) -> None:
            answer.bytes_left += budget
            if _leads(hosted, want.leader_epoch):
                self._served(answer, hosted, want, slices)
            else:
                # What was read may be cut here, and what is committed by now is so of another history.
                slices.release()
                self._failed(answer, want, NotLeader(f"{hosted.name} is not led by this node any more"))
            self._read_done(answer)

        def failed(error: RinglogError | OSError) -> None:
            answer.bytes_left += budget
            self._failed(answer, want, disk_error(hosted.name, "read", error))
            self._read_done(answer)

        self._store.read(hosted.name, want.fetch_offset, budget, done=done, failed=failed, ahead=True)

    def _served(self, answer: _Answer, hosted: HostedPartition, want: Want, slices: Slices) -> None:
        if slices.nbytes > max(0, answer.bytes_left) and answer.parts:
            # A batch that is larger than an answer goes alone: with others it might fit no frame.
            slices.release()
            answer.put_back([want.partition])
            return
        answer.parts.append(_part(hosted, want, answer.plan.fetch.node, slices.nbytes))
        answer.slices.append(slices)
        answer.bytes_left -= slices.nbytes

    def _failed(self, answer: _Answer, want: Want, error: RinglogError) -> None:
        answer.parts.append(Part(want.partition, number_of(error), -1, want.fetch_offset, -1, -1))

    def _read_done(self, answer: _Answer) -> None:
        answer.reading -= 1
        if answer.reading == 0:
            fetch = answer.plan.fetch
            head = ReplicaFetched(fetch.session, fetch.sequence, answer.plan.lost, answer.parts)
            self._lend(answer.asker, encode_fetched(head), answer.slices)


def share_of(bytes_max: int, bytes_left: int, entries_left: int) -> int:
    """What a partition that wants so much may take of an answer, with so many still to come, itself included. A
    follower that is behind in few partitions gets much of each at once: that costs both far less than many answers.

    >>> share_of(4 << 20, 4 << 20, 1) >> 20, share_of(4 << 20, 4 << 20, 2) >> 20, share_of(4 << 20, 4 << 20, 50) >> 20
    (4, 2, 1)
    """
    fair = max(REPLICA_PARTITION_BYTES, bytes_left // entries_left)
    return max(1, min(bytes_max, bytes_left, fair))


def _leads(hosted: HostedPartition, leader_epoch: int) -> bool:
    leader = hosted.replica.leader if hosted.replica is not None else None
    return leader is not None and leader.view.leader_epoch == leader_epoch


def _part(
    hosted: HostedPartition, want: Want, node: int, nbytes: int, epoch: int = -1, offset: int = -1
) -> Part:
    replica = hosted.replica
    assert replica is not None and replica.view is not None
    leader = replica.leader
    return Part(
        want.partition,
        0,
        want.leader_epoch,
        want.fetch_offset,
        replica.high_watermark,
        hosted.log.log_start_offset,
        nbytes,
        epoch,
        offset,
        # Where this log lacks something itself, the follower may have what nobody else has.
        leader is not None and not leader.counts_on(node) and hosted.log.hole_offset is None,
    )
