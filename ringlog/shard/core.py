"""What a shard does with its requests: appends, fetches, questions about offsets. No loop, no clock, no ring.

The agent gives it drained tables and the log's events; replies go to the outlets that the requests came from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial

from ringlog.controller.records import decode_delta
from ringlog.controller.topic_config import NOTHING
from ringlog.errors import (
    CorruptBatch,
    CorruptFrame,
    InvalidRequest,
    PartitionBusy,
    RequestTimeout,
    RinglogError,
    UnsupportedVersion,
)
from ringlog.limits import BATCH_HEADER_BYTES, REPLICA_LAG_MS_DEFAULT
from ringlog.log.batch import BatchInfo, batch_infos
from ringlog.log.events import Event, Fenced, Progress, Quarantined, ReadRefused, StartMoved, Submitted
from ringlog.log.partition import PartitionLog
from ringlog.log.store import LogStore
from ringlog.model import Codec, Durability, LogEnds, TopicPartition
from ringlog.net.framing import GROUP_APIS, Acks, Api, Flag
from ringlog.net.messages import (
    DeleteRecordsRequest,
    DescribePartitionsReply,
    DescribePartitionsRequest,
    FetchRequest,
    ListOffsetsRequest,
    PartitionDescription,
    ProduceReply,
    SplitPointsRequest,
    decode_body,
)
from ringlog.net.wire_errors import number_of
from ringlog.records.codecs import check_beginning
from ringlog.records.format import CODEC_MASK, codec_of
from ringlog.records.recompress import needs_recompression, recompress
from ringlog.records.scan import scan
from ringlog.ring.drain import DrainStatus
from ringlog.ring.frame import is_overdue
from ringlog.ring.stats import Stats
from ringlog.shard.acks import AckQueue
from ringlog.shard.asker import NOT_BEGUN, Asker, Outlet
from ringlog.shard.commands import REPLICA_APIS, NodeApi, unpack_u64
from ringlog.shard.deleting import DeletionDesk
from ringlog.shard.fetching import FetchDesk
from ringlog.shard.groups import GroupDesk
from ringlog.shard.hosting import HostedPartition, Hosting
from ringlog.shard.keys import require_keys
from ringlog.shard.near_batches import NearBatches
from ringlog.shard.offset_question import OffsetQuestion
from ringlog.shard.replica_answers import ReplicaAnswers
from ringlog.shard.replicating import ReplicationDesk
from ringlog.shard.splitting import SplitQuestion
from ringlog.shard.unreadable import UnreadableSegments

_PRODUCE, _FETCH, _RELEASE = int(Api.PRODUCE), int(Api.FETCH), int(NodeApi.RELEASE)
_ACKS_MASK, _ACKS_ALL, _ACKS_RECEIVED = int(Flag.ACKS_MASK), int(Acks.ALL), int(Acks.RECEIVED)
_NEAR = int(Flag.NEAR)
"""As plain numbers: a member of an enum costs as much as three calls at each use."""
_log = logging.getLogger(__name__)


class ShardCore:
    """One shard's partitions, and the desks that serve them."""

    def __init__(
        self,
        shard: int,
        store: LogStore,
        stats: Stats,
        region: memoryview,
        near: NearBatches,
        *,
        first_session: int = 1,
        incarnation: int = 1,
        topic_defaults: Mapping[str, str] = NOTHING,
        lag_ms_max: int = REPLICA_LAG_MS_DEFAULT,
    ) -> None:
        """`incarnation`: counts the processes that served this shard since the node's start; `lag_ms_max`: how long a
        replica may lag and be in sync."""
        self.store = store
        self.stats = stats
        self.near = near
        self._placed: list[PartitionLog] = []
        """Whose memory batches were copied to in this drain, whether they were taken or refused."""
        self.hosting = Hosting(
            shard, store, stats, self._partition_opened, self._partition_gone, topic_defaults
        )
        self.fetches = FetchDesk(
            store,
            stats,
            self.hosting.find_led,
            region,
            first_session,
            self.hosting.find_in_sync,
            hosted=self.hosting.hosted,
        )
        self.deletions = DeletionDesk(store, self.hosting)
        self.groups = GroupDesk(store, self.hosting.image, self.hosting.find_led, self._ends)
        self.replication = ReplicationDesk(
            shard,
            store,
            self.hosting,
            ReplicaAnswers(store, self.hosting, self.fetches.lend),
            committed=self._grown,
            role_changed=self._role_changed,
            incarnation=incarnation,
            lag_ms_max=lag_ms_max,
        )
        self._unreadable = UnreadableSegments()
        self.is_stirred = True
        """Something has happened that is more than records on their way in or out: what waits for such is to be looked
        after."""
        self._now_ms = 0
        self._now_us = 0

    def at(self, *, now_ms: int, now_us: int) -> None:
        """The time of this cycle: wall time in milliseconds, monotonic time in microseconds."""
        self._now_ms, self._now_us = now_ms, now_us

    # -- requests of clients ---------------------------------------------------------------------------------

    def take(self, outlet: Outlet, rows: Iterable[tuple[int, ...]], memory: memoryview) -> None:
        """Take all frames of one drain, grouped by partition; their bodies are views of `memory`."""
        now_ms = self._now_us // 1000
        self._leave_places()  # of a drain that was cut off
        for row in rows:
            (
                correlation,
                session,
                position,
                producer_id,
                max_timestamp,
                partition,
                _kind,
                due_ms,
                body_bytes,
                batch_count,
                record_count,
                base_sequence,
                _last_sequence,
                fault_position,
                producer_epoch,
                flags,
                attributes,
                status,
                api_key,
                _version,
                _zero,
            ) = row
            asker = Asker(outlet, session, correlation, api_key, partition)
            body = memory[position : position + body_bytes]
            try:
                if due_ms and is_overdue(due_ms, now_ms):
                    raise RequestTimeout(NOT_BEGUN)
                if flags & _NEAR and api_key == _PRODUCE and not status:
                    body, row = self.near.take(outlet, session, body, partial(self._place_batch, partition))
                    producer_id, max_timestamp, _, _, _, body_bytes, batch_count = row[3:10]
                    record_count, base_sequence, _, fault_position, producer_epoch = row[10:15]
                    attributes, status = row[16:18]
                if status:
                    raise _refusal(DrainStatus(status), fault_position, body)
                if api_key == _PRODUCE:
                    if batch_count == 1:
                        batch = BatchInfo(
                            body_bytes,
                            record_count,
                            max_timestamp,
                            producer_id,
                            producer_epoch,
                            base_sequence,
                        )
                        batches = [batch]
                    else:
                        batches = batch_infos(scan(body, level="headers").table)
                    self._produce(asker, body, batches, flags & _ACKS_MASK, attributes)
                elif api_key in REPLICA_APIS:
                    stirs = self.replication.take(asker, flags, body, self._now_ms)
                    # A deletion waits until other replicas say that their logs begin later.
                    self.is_stirred = self.is_stirred or stirs or self.deletions.is_waiting
                else:
                    self._answer(asker, body)
            except RinglogError as error:
                self.stats.counts["errors"] += 1
                if api_key in REPLICA_APIS and (flags or api_key == NodeApi.REPLICA_HELD):
                    continue  # it was an answer, or wants none
                if api_key != Api.PRODUCE or flags & Flag.ACKS_MASK != Acks.NONE:
                    asker.refuse(error)
        self._leave_places()

    def _leave_places(self) -> None:
        for log in self._placed:
            log.waiting.leave_place()
        self._placed.clear()

    def _place_batch(self, partition: int, nbytes: int) -> memoryview | None:
        """Where the log of a partition wants its next batch, if it is led here and cares."""
        hosted = self.hosting.hosted.get(partition)
        if hosted is None or self.groups.hosts(partition):
            return None
        if hosted.replica is not None and hosted.replica.leader is None:
            return None
        place = hosted.log.place(nbytes, self._now_ms)
        if place is not None:
            self._placed.append(hosted.log)
        return place

    def _produce(
        self, asker: Asker, data: memoryview, batches: list[BatchInfo], acks: int, attributes: int
    ) -> None:
        hosted = self.hosting.find_led(asker.partition)
        if self.groups.hosts(asker.partition):
            raise InvalidRequest(f"{hosted.name} is the node's own: nobody else writes to it")
        if attributes & ~CODEC_MASK:  # the rest is the broker's, or of transactions
            raise InvalidRequest(
                f"batch attributes {attributes:#x}: clients set the codec alone; transactions are not there yet"
            )
        if attributes & CODEC_MASK:
            _check_codecs(data)
        for batch in batches:
            if batch.producer_id >= 0 and (batch.producer_epoch < 0 or batch.base_sequence < 0):
                raise InvalidRequest("a batch with a producer id needs its epoch and sequence, too")
        log, came_bytes = hosted.log, data.nbytes
        if log.settings.compact:
            require_keys(data, hosted.name)
        if log.settings.codec is not None:
            data, batches = _recompressed(data, batches, log.settings.codec, log.settings.append_bytes_max)
        leader = hosted.replica.leader if hosted.replica is not None else None
        if leader is None:
            epoch, acks_at, queue = 0, log.settings.flush.acks_at, hosted.acks
        else:
            epoch, acks_at, queue = leader.view.leader_epoch, Durability.COMMITTED, hosted.acks
            if acks == _ACKS_ALL:
                leader.must_take()
            else:
                acks_at, queue = log.settings.flush.acks_at, hosted.leader_acks
        if queue.is_full and acks and acks != _ACKS_RECEIVED:
            raise PartitionBusy(
                f"{hosted.name}: {len(queue)} batches wait to be {acks_at.name.lower()}. Retry after a pause"
            )
        appended = self.store.append(hosted.name, data, batches, now_ms=self._now_ms, leader_epoch=epoch)
        records = appended.last_offset - appended.base_offset + 1
        if not appended.repeated:
            counts = self.stats.counts
            counts["bytes_in"] += came_bytes
            counts["records_in"] += records
            counts["batches_in"] += len(batches)
            self.stats.moved(asker.partition, bytes_in=came_bytes, records_in=records)
        if not acks:
            return
        append_time_ms = appended.append_time_ms
        if acks == _ACKS_RECEIVED:
            received = ProduceReply(
                appended.base_offset,
                append_time_ms,
                log.log_start_offset,
                Durability.RECEIVED,
                int(appended.repeated),
            )
            asker.reply(received.pack())
            return
        acked = log.readable_offset if queue is hosted.acks else log.held_offset
        if appended.repeated and appended.last_offset < acked:
            reply = ProduceReply(
                appended.base_offset, append_time_ms, log.log_start_offset, acks_at, repeated=1
            )
            asker.reply(reply.pack())
            return
        queue.add(
            asker,
            base_offset=appended.base_offset,
            next_offset=appended.last_offset + 1,
            append_time_ms=append_time_ms,
            repeated=appended.repeated,
            received_us=self._now_us,
        )

    def _answer(self, asker: Asker, body: memoryview) -> None:
        if asker.api_key == _FETCH:
            self.fetches.fetch(asker, decode_body(body, FetchRequest), self._now_ms)
            return
        if asker.api_key == _RELEASE:
            self.fetches.release(unpack_u64(body))
            return
        self.is_stirred = True
        if asker.api_key == Api.LIST_OFFSETS:
            OffsetQuestion(self.store, self.hosting, asker, decode_body(body, ListOffsetsRequest)).ask()
        elif asker.api_key == Api.DESCRIBE_PARTITIONS:
            request = decode_body(body, DescribePartitionsRequest)
            asker.reply_struct(DescribePartitionsReply([self._describe(p) for p in request.partitions]))
        elif asker.api_key == Api.SPLIT_POINTS:
            SplitQuestion(self.store, self.hosting, asker, decode_body(body, SplitPointsRequest)).ask()
        elif asker.api_key == Api.DELETE_RECORDS:
            self.deletions.delete(asker, decode_body(body, DeleteRecordsRequest))
        elif asker.api_key in GROUP_APIS:
            self.groups.answer(asker, body, self._now_ms)
        elif asker.api_key == NodeApi.LEFT:
            for session in unpack_u64(body):
                self.groups.client_left(asker.outlet, session, self._now_ms)
        elif asker.api_key == NodeApi.GONE:
            gone = unpack_u64(body)
            self.near.left(asker.outlet, gone)
            for session in gone:
                self.fetches.client_left(asker.outlet, session)
        else:
            raise UnsupportedVersion(f"api {asker.api_key} is not known to this node")

    def _describe(self, partition: int) -> PartitionDescription:
        try:
            log = self.hosting.find(partition).log
        except RinglogError as error:
            return PartitionDescription(partition, number_of(error), -1, -1, -1, 0, 0, "closed")
        return PartitionDescription(
            partition,
            0,
            log.log_start_offset,
            log.readable_offset,
            log.next_offset,
            log.log_bytes,
            len(log.segments),
            log.status.value,
        )

    def _ends(self, tp: TopicPartition) -> LogEnds | None:
        """Where the log of any shard begins and ends, from the page that all of them write to."""
        image = self.hosting.image
        topic = image.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return None
        partition = topic.partitions[tp.partition]
        first_shard = self.stats.process - self.hosting.shard
        shard = image.partitions[partition].shard_on(image.node_id)
        areas = self.stats.page.areas
        if shard is None or first_shard + shard >= len(areas):
            return None
        return areas[first_shard + shard].ends(partition)

    # -- the controller ----------------------------------------------------------------------------------------

    def take_delta(self, body: memoryview) -> None:
        """Follow a change of metadata."""
        delta = decode_delta(bytes(body))
        self.hosting.image.apply(delta)
        if not delta.more:
            self.hosting.follow()
            self.replication.follow(self._now_ms)
            self.groups.follow(self._now_ms)

    # -- what the log tells --------------------------------------------------------------------------------------

    def progress(self, events: list[Event]) -> None:
        """Serve those who wait to read what has become durable, and answer those who sent it.

        Readers first: their reply is the longer one, and the two leave together."""
        is_followed = False
        for event in events:
            hosted = self.hosting.by_name.get(event.log.name)
            if isinstance(event, Submitted):
                if hosted is not None and hosted.log is event.log:
                    self.replication.submitted(hosted, self._now_ms)
                continue
            if hosted is None or not isinstance(event, Progress):
                self.is_stirred = True
            if isinstance(event, Fenced):
                self.hosting.fenced(event.log, event.error, self._now_ms)
            elif hosted is None or hosted.log is not event.log:
                continue
            elif isinstance(event, Quarantined):
                _log.error("%s lacks records: %s", hosted.name, event.error)
                self.hosting.look_for_hole(hosted)
                self.replication.holed(hosted, self._now_ms)
            elif isinstance(event, ReadRefused):
                self._unreadable.refused(hosted, event, self._now_us // 1000)
            elif isinstance(event, StartMoved):
                self.stats.partitions.started(hosted.partition, event.offset)
                self.hosting.look_for_hole(hosted)
                self.replication.start_moved(hosted, self._now_ms)
                self.deletions.look(hosted)
            elif isinstance(event, Progress) and event.durability >= event.log.settings.flush.acks_at:
                if hosted.replica is None:
                    self._grown(hosted)
                else:
                    self._answer_acks(
                        hosted.leader_acks, hosted, event.offset, event.log.settings.flush.acks_at
                    )
                    self.replication.progress(hosted, self._now_ms)
                    is_followed = is_followed or hosted.replica.follower is not None
        if is_followed:
            self.replication.ask(self._now_ms)

    def _grown(self, hosted: HostedPartition) -> None:
        """Readers may see more of a partition: those who wait for that, and those who sent it, are answered."""
        log = hosted.log
        self.stats.partitions.grown(hosted.partition, log.readable_offset)
        if hosted.watchers:
            self.fetches.grown(hosted, self._now_ms)
        durability = log.settings.flush.acks_at if hosted.replica is None else Durability.COMMITTED
        self._answer_acks(hosted.acks, hosted, log.readable_offset, durability)
        self.groups.durable(hosted)

    def _answer_acks(
        self, queue: AckQueue, hosted: HostedPartition, offset: int, durability: Durability
    ) -> None:
        for ack in queue.advance(offset, durability, hosted.log.log_start_offset):
            self.stats.observe("append_us", self._now_us - ack.received_us)

    def forget(self, outlet: Outlet) -> None:
        """A network process died: nothing that it asked for is answered any more."""
        self.near.forget(outlet)
        self.fetches.forget(outlet)
        self.deletions.forget(outlet)
        self.groups.forget(outlet)
        self.replication.forget(outlet)
        for hosted in self.hosting.hosted.values():
            if hosted.acks:
                hosted.acks.forget(outlet)
            if hosted.leader_acks:
                hosted.leader_acks.forget(outlet)

    def _partition_opened(self, hosted: HostedPartition) -> None:
        if hosted.replica is None:
            self.groups.opened(hosted)
        else:
            self.replication.opened(hosted, self._now_ms)

    def _role_changed(self, hosted: HostedPartition) -> None:
        """The coordinators of groups are where their partition is led; readers are told to look elsewhere."""
        assert hosted.replica is not None
        self.groups.gone(hosted)
        self.deletions.deposed(hosted)
        if hosted.replica.leader is not None:
            self.groups.opened(hosted)
        else:
            self.fetches.gone(hosted, self._now_ms)

    def _partition_gone(self, hosted: HostedPartition) -> None:
        self.groups.gone(hosted)
        self.replication.gone(hosted)
        self.fetches.gone(hosted, self._now_ms)
        self.deletions.gone(hosted)


def _check_codecs(data: memoryview) -> None:
    """Refuse what certainly cannot be unfolded. The rest is for readers to find out: a node that unfolded all it takes
    would do its clients' work, at their rate."""
    for row in scan(data, level="headers").table:
        codec = codec_of(int(row["attributes"]))
        if codec is not Codec.NONE:
            at = int(row["position"])
            records = data[at + BATCH_HEADER_BYTES : at + int(row["length"])]
            check_beginning(codec, records, at + BATCH_HEADER_BYTES)


def _recompressed(
    data: memoryview, batches: list[BatchInfo], codec: Codec, bytes_max: int
) -> tuple[memoryview, list[BatchInfo]]:
    """The batches under the codec of their topic, and what the log must know of them."""
    table = scan(data, level="headers").table
    if not needs_recompression(table, codec):
        return data, batches
    made = recompress(data, table, codec, bytes_max)
    return memoryview(made), batch_infos(scan(made, level="headers", bytes_max=len(made)).table)


def _refusal(status: DrainStatus, position: int, body: memoryview) -> RinglogError:
    """Why a frame is not taken, as its sender is told."""
    if status is DrainStatus.FRAME_VERSION:
        return UnsupportedVersion("the frame has a version that this node does not speak")
    if status is DrainStatus.BAD_BATCH:
        found = scan(body, level="full", gapless=True)
        if found.fault is not None:
            return found.fault
        return CorruptBatch("batch", position, "it cannot be read")
    if status is DrainStatus.NO_BATCH:
        return CorruptBatch("batch", position, "there is none in the request")
    if status is DrainStatus.MIXED_PRODUCERS:
        return InvalidRequest("the batches of one request must be of one producer, without a gap")
    return CorruptFrame("frame", position, "its length is wrong")
