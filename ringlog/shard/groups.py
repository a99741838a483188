"""Hosts the coordinators of groups: each lives beside the partition of the offsets topic that is its log.

Records of one cycle go into the log as one batch, or as several if they are very many, and replies wait until all is
durable. A coordinator is made from its log when the partition is opened, a piece at a time, and again whenever its
records could not be appended: what is in the log is true, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ringlog.controller.image import MetadataImage
from ringlog.coordination.catalogue import Catalogue, TopicInfo
from ringlog.coordination.coordinator import GroupCoordinator, Outcome, Reply
from ringlog.coordination.describe import summaries
from ringlog.coordination.lag import Ends
from ringlog.coordination.records import OffsetKey, Record, decode_record, encode_record
from ringlog.errors import (
    CoordinatorLoading,
    InvalidRequest,
    InvariantBroken,
    LimitExceeded,
    RinglogError,
    UnsupportedVersion,
)
from ringlog.limits import GROUP_REPLY_BYTES_MAX, KIB, MIB, OFFSETS_PARTITIONS
from ringlog.log.batch import BatchInfo
from ringlog.log.reading import Slices
from ringlog.log.store import LogStore
from ringlog.net.framing import Api
from ringlog.net.group_messages import (
    OFFSETS_TOPIC,
    GroupDeleteRequest,
    GroupDescribeRequest,
    GroupHeartbeatRequest,
    GroupListReply,
    GroupListRequest,
    GroupResetRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from ringlog.net.messages import Body, decode_body, encode_body
from ringlog.records.decode import decode
from ringlog.records.encode import encode
from ringlog.records.partitioner import partition_for
from ringlog.shard.asker import Asker
from ringlog.shard.hosting import HostedPartition

BATCH_BYTES_TARGET = 512 * KIB
"""A batch of group records stops growing here; what is true of a group only as a whole stays together."""
LOAD_BYTES = 1 * MIB
"""Read and replayed at once while a coordinator is made."""
RELOAD_MS = 500
"""Between two attempts to read a log that could not be read."""

_REQUESTS: dict[int, type[Body]] = {
    Api.GROUP_HEARTBEAT: GroupHeartbeatRequest,
    Api.OFFSET_COMMIT: OffsetCommitRequest,
    Api.OFFSET_FETCH: OffsetFetchRequest,
    Api.GROUP_DESCRIBE: GroupDescribeRequest,
    Api.GROUP_RESET: GroupResetRequest,
    Api.GROUP_DELETE: GroupDeleteRequest,
}


class _WaitingReply(NamedTuple):
    """For when all below an offset is durable."""

    offset: int
    reply: Reply


class GroupPartition:
    """One partition of the offsets topic, and the coordinator of its groups."""

    def __init__(self, hosted: HostedPartition, store: LogStore, catalogue: Catalogue) -> None:
        self.hosted = hosted
        self._store = store
        self._records: list[tuple[bytes, bytes | None]] = []
        self._records_bytes = 0
        self._replies: list[Reply] = []
        """Of what is not appended yet."""
        self._waiting: deque[_WaitingReply] = deque()
        self.begin(catalogue)

    # -- from the log --------------------------------------------------------------------------------------------

    def begin(self, catalogue: Catalogue) -> None:
        """Make the coordinator anew, from the log."""
        self.coordinator = GroupCoordinator(catalogue)
        self.loading = True
        self.retry_at_ms = 0
        self._read_offset = self.hosted.log.log_start_offset
        self._reading = False

    @property
    def load_due_ms(self) -> int | None:
        """When to read on; None while the disk is at work, which will say so."""
        waits = self._reading or self._read_offset >= self.hosted.log.readable_offset
        done = self._read_offset >= self.hosted.log.next_offset
        return None if waits and not done else self.retry_at_ms

    def load(self, now_ms: int) -> None:
        """Read on, or be done."""
        if self._reading or now_ms < self.retry_at_ms:
            return
        log = self.hosted.log
        if self._read_offset >= log.next_offset:
            self.coordinator.loaded(now_ms)
            self.loading = False
            # Topics may have changed since the last record.
            self.take(self.coordinator.follow(self.coordinator.catalogue, now_ms), now_ms)
            return
        if self._read_offset >= log.readable_offset:
            return  # what was appended last is still on its way to the disk
        self._reading = True
        coordinator = self.coordinator
        self._store.read(
            self.hosted.name,
            self._read_offset,
            LOAD_BYTES,
            done=lambda slices: self._loaded(coordinator, slices, now_ms),
            failed=lambda error: self._not_loaded(coordinator, now_ms),
        )

    def _loaded(self, coordinator: GroupCoordinator, slices: Slices, now_ms: int) -> None:
        with slices:
            data, next_offset = slices.tobytes(), slices.next_offset
        if coordinator is not self.coordinator:
            return  # it was given up meanwhile
        self._reading = False
        try:
            for record in decode(data):
                if record.offset >= self._read_offset and record.key is not None:
                    coordinator.image.replay(decode_record(record.key, record.value))
        except RinglogError:
            self._not_loaded(coordinator, now_ms)
            return
        self._read_offset = next_offset

    def _not_loaded(self, coordinator: GroupCoordinator, now_ms: int) -> None:
        if coordinator is self.coordinator:
            self.begin(coordinator.catalogue)
            self.retry_at_ms = now_ms + RELOAD_MS

    # -- to the log ----------------------------------------------------------------------------------------------

    def take(self, outcome: Outcome, now_ms: int) -> None:
        """Note records and replies; they go to the log with the others of this cycle."""
        group = ""
        for record in outcome.records:
            if self._records_bytes >= BATCH_BYTES_TARGET and _may_part(group, record):
                error = self.append(now_ms)
                if error is not None:
                    for reply in outcome.replies:
                        reply.ticket.refuse(error)
                    return  # the rest is of a coordinator that is no more
            group = record.key.group
            key, value = encode_record(record)
            self._records.append((key, value))
            self._records_bytes += len(key) + len(value or b"") + 16
        self._replies += outcome.replies
        if self._records_bytes >= BATCH_BYTES_TARGET:
            self.append(now_ms)

    def append(self, now_ms: int) -> RinglogError | None:
        """Give the log what this cycle has made. If it cannot take it, nothing of it was: begin anew; and why."""
        log = self.hosted.log
        records, self._records, self._records_bytes = self._records, [], 0
        replies, self._replies = self._replies, []
        if records:
            batch = encode(
                [value for _, value in records], [key for key, _ in records], timestamps=max(now_ms, 0)
            )
            info = BatchInfo(len(batch), len(records), max(now_ms, 0))
            try:
                epoch = self.hosted.leader_epoch
                self._store.append(
                    self.hosted.name, memoryview(batch), [info], now_ms=now_ms, leader_epoch=epoch
                )
            except RinglogError as error:
                for reply in replies:
                    reply.ticket.refuse(error)
                self.give_up(error)
                self.begin(self.coordinator.catalogue)
                return error
        if log.next_offset <= log.readable_offset:
            for reply in replies:
                _answer(reply)
        else:
            self._waiting.extend(_WaitingReply(log.next_offset, reply) for reply in replies)
        return None

    def durable(self, offset: int) -> None:
        """All below an offset is durable: answer what waited for it."""
        while self._waiting and self._waiting[0].offset <= offset:
            _answer(self._waiting.popleft().reply)

    def give_up(self, error: RinglogError) -> None:
        """This coordinator is no more: whoever waits for it must ask again."""
        for waiting in self._waiting:
            waiting.reply.ticket.refuse(error)
        for reply in self._replies:
            reply.ticket.refuse(error)
        for ticket in self.coordinator.abandon():
            ticket.refuse(error)
        self._waiting.clear()
        self._replies, self._records, self._records_bytes = [], [], 0

    def forget(self, outlet: object) -> None:
        """The network process that asked is dead."""
        self._waiting = deque(one for one in self._waiting if one.reply.ticket.outlet is not outlet)
        self._replies = [reply for reply in self._replies if reply.ticket.outlet is not outlet]
        self.coordinator.forget(lambda ticket: ticket.outlet is outlet)


class GroupDesk:
    """All coordinators of a shard."""

    def __init__(
        self, store: LogStore, image: MetadataImage, find: Callable[[int], HostedPartition], ends: Ends
    ) -> None:
        self._store = store
        self._ends = ends
        self._image = image
        self._find = find
        self._partitions: dict[int, GroupPartition] = {}
        self._touched: dict[int, GroupPartition] = {}
        """Those that were asked something in this cycle."""
        self._loading: dict[int, GroupPartition] = {}
        self._due_ms: dict[int, int] = {}
        """When each partition's coordinator has something to do, should nothing happen before."""
        self._next_due_ms: int | None = None
        self._version = -1
        self._catalogue: Catalogue = {}

    def hosts(self, partition: int) -> bool:
        """Whether only this desk may write to a partition."""
        return partition in self._partitions

    def opened(self, hosted: HostedPartition) -> None:
        """A partition was opened: if it is one of the offsets topic, its groups are read from it."""
        if hosted.name.topic == OFFSETS_TOPIC:
            self._follow_topics()
            place = GroupPartition(hosted, self._store, self._catalogue)
            self._partitions[hosted.partition] = self._loading[hosted.partition] = place

    def gone(self, hosted: HostedPartition) -> None:
        """A partition is closed."""
        found = self._partitions.pop(hosted.partition, None)
        self._touched.pop(hosted.partition, None)
        self._loading.pop(hosted.partition, None)
        self._due_ms.pop(hosted.partition, None)
        if found is not None:
            found.give_up(_loading())

    # -- requests --------------------------------------------------------------------------------------------------

    def answer(self, asker: Asker, body: memoryview, now_ms: int) -> None:
        """Take a request about a group."""
        self._find(asker.partition)  # tells what is wrong with a partition that is not here
        if asker.api_key == Api.GROUP_LIST:
            decode_body(body, GroupListRequest)
            self._list(asker, now_ms)
            return
        kind = _REQUESTS.get(asker.api_key)
        if kind is None:
            raise UnsupportedVersion(f"api {asker.api_key} is not known to this node")
        request = decode_body(body, kind)
        place = self._place(asker.partition, request.group_id)  # type: ignore[attr-defined]
        try:
            outcome = self._judge(place.coordinator, asker, request, now_ms)
        except InvariantBroken as error:
            place.give_up(error)
            place.begin(self._catalogue)
            self._loading[asker.partition] = place
            self._due_ms.pop(asker.partition, None)
            raise
        place.take(outcome, now_ms)
        self._touched[asker.partition] = place

    def _place(self, partition: int, group_id: str) -> GroupPartition:
        place = self._partitions.get(partition)
        index = partition_for(group_id.encode(), OFFSETS_PARTITIONS)
        if place is None or place.hosted.name.partition != index:
            raise InvalidRequest(
                f"group {group_id!r} is kept in {OFFSETS_TOPIC}-{index}: name its id in the header"
            )
        if place.loading:
            raise _loading()
        return place

    def _judge(self, coordinator: GroupCoordinator, asker: Asker, request: Body, now_ms: int) -> Outcome:
        match request:
            case GroupHeartbeatRequest():
                return coordinator.heartbeat(asker, request, now_ms)
            case OffsetCommitRequest():
                return coordinator.commit(asker, request, now_ms)
            case OffsetFetchRequest():
                return coordinator.fetch_offsets(asker, request)
            case GroupDescribeRequest():
                return coordinator.describe(asker, request, self._ends, now_ms)
            case GroupResetRequest():
                return coordinator.reset(asker, request, now_ms)
            case GroupDeleteRequest():
                return coordinator.delete(asker, request)
        raise InvariantBroken(f"no group request: {request}")

    def _list(self, asker: Asker, now_ms: int) -> None:
        known = [place for place in self._partitions.values() if not place.loading]
        groups = [
            summary
            for place in known
            for summary in summaries(place.coordinator.image, self._catalogue, self._ends, now_ms)
        ]
        groups.sort(key=lambda summary: summary.group_id)
        _answer(Reply(asker, GroupListReply(groups, len(self._partitions) - len(known))))

    # -- time ------------------------------------------------------------------------------------------------------

    def work(self, now_ms: int) -> None:
        """Load, let time pass, and append what this cycle has made. Costs nothing while there is nothing to do."""
        due_ms = self._next_due_ms
        if not self._touched and not self._loading and (due_ms is None or now_ms < due_ms):
            return
        for place in list(self._loading.values()):
            place.load(now_ms)
            if not place.loading:
                del self._loading[place.hosted.partition]
                self._touched[place.hosted.partition] = place
        for partition in [partition for partition, at_ms in self._due_ms.items() if at_ms <= now_ms]:
            place = self._partitions[partition]
            if not place.loading:  # else it knows half of its groups
                place.take(place.coordinator.tick(now_ms), now_ms)
            self._touched[partition] = place
        touched, self._touched = self._touched, {}
        for partition, place in touched.items():
            place.append(now_ms)
            due_ms = place.coordinator.next_due_ms
            if place.loading:
                self._loading[partition] = place
            if place.loading or due_ms is None:
                self._due_ms.pop(partition, None)
            else:
                self._due_ms[partition] = due_ms
        self._next_due_ms = min(self._due_ms.values(), default=None)

    @property
    def next_due_ms(self) -> int | None:
        """When `work` has something to do, should nothing happen before."""
        if self._touched:
            return 0
        if not self._loading:
            return self._next_due_ms
        loading = (place.load_due_ms for place in self._loading.values())
        dues = (due_ms for due_ms in (self._next_due_ms, *loading) if due_ms is not None)
        return min(dues, default=None)

    def follow(self, now_ms: int) -> None:
        """The metadata have changed."""
        if not self._partitions:
            return
        self._follow_topics()
        for place in self._partitions.values():
            if place.loading:
                place.coordinator.catalogue = self._catalogue
            else:
                place.take(place.coordinator.follow(self._catalogue, now_ms), now_ms)
                self._touched[place.hosted.partition] = place

    def durable(self, hosted: HostedPartition) -> None:
        """The log of a partition has grown."""
        place = self._partitions.get(hosted.partition)
        if place is not None:
            place.durable(hosted.log.readable_offset)

    def client_left(self, outlet: object, session: int, now_ms: int) -> None:
        """A client's process has died: its members are dead, unless they are heard of again."""
        for partition, place in self._partitions.items():
            place.coordinator.clients_left(lambda ticket: ticket[:2] == (outlet, session), now_ms)
            self._touched[partition] = place

    def forget(self, outlet: object) -> None:
        """A network process died. Its clients live, and will come back through another."""
        for place in self._partitions.values():
            place.forget(outlet)

    def _follow_topics(self) -> None:
        if self._version != self._image.version:
            self._version = self._image.version
            self._catalogue = {
                topic.name: TopicInfo(topic.topic_id, len(topic.partitions))
                for topic in self._image.topics.values()
            }


def _may_part(group: str, record: Record) -> bool:
    """Whether a record may be in the log though its batch's end cut it off from what came before, of that group: it is
    of another group, or one of many offsets that are forgotten."""
    return record.key.group != group or (record.value is None and isinstance(record.key, OffsetKey))


def _answer(reply: Reply) -> None:
    asker: Asker = reply.ticket
    if isinstance(reply.body, RinglogError):
        asker.refuse(reply.body)
        return
    body = encode_body(reply.body)
    if len(body) > GROUP_REPLY_BYTES_MAX:  # it would not fit the ring
        asker.refuse(
            LimitExceeded(f"an answer of {len(body)} bytes, more than {GROUP_REPLY_BYTES_MAX}: ask for less")
        )
    else:
        asker.reply(body)


def _loading() -> RinglogError:
    return CoordinatorLoading("the group's state is being read from its log. Retry after a pause")
