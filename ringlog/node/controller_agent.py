"""The loop of the controller process: commands → records → metadata log → deltas to everyone, then the reply.

A change is answered when the metadata log has it flushed and every living shard serves it, so that whoever creates
a topic can write to it at once. A shard that is being restarted is not waited for: it begins with the whole image.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import msgspec

from ringlog.config import NodeConfig
from ringlog.controller import commands
from ringlog.controller.commands import Outcome
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import (
    Delta,
    Identity,
    MetadataRecord,
    Partition,
    TopicRemoved,
    deltas_of,
    encode_delta,
)
from ringlog.errors import (
    PartitionBusy,
    RequestTimeout,
    RingClosed,
    RingCorrupt,
    RinglogError,
    RingStale,
    UnsupportedVersion,
)
from ringlog.limits import SEGMENT_BYTES_DEFAULT
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.group_messages import OFFSETS_TOPIC
from ringlog.net.messages import (
    AddPartitionsRequest,
    AlterTopicRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    decode_body,
)
from ringlog.node.metadata_log import MetadataLog
from ringlog.ring.board import Board, Links, ProcessState
from ringlog.ring.frame import is_overdue
from ringlog.ring.link import LinkEnd
from ringlog.ring.ring import Message
from ringlog.ring.stats import LoopClock, Stats
from ringlog.shard.asker import NOT_BEGUN, Asker
from ringlog.shard.commands import NodeApi, node_frame, unpack_u64

APPLY_PATIENCE_S = 5.0
"""How long a reply waits for shards to serve the change; then it goes out all the same."""
IDLE_WAIT_S = 0.5


class _WaitingReply(msgspec.Struct):
    """A change that is flushed, and that not all shards serve yet."""

    version: int
    asker: Asker
    body: msgspec.Struct
    until_s: float


class ControllerAgent:
    """The controller process's work."""

    def __init__(
        self,
        process: int,
        config: NodeConfig,
        board: Board,
        links: Links,
        log: MetadataLog,
        stats: Stats,
        stopping: Callable[[], bool],
    ) -> None:
        self._process = process
        self._config = config
        self._board = board
        self._links = links
        self._log = log
        self._stats = stats
        self._stopping = stopping
        self._shards = board.topology.shards
        self._shard_processes = [board.topology.shard(index) for index in range(self._shards)]
        self._image = MetadataImage()
        """What is flushed: what everyone may know."""
        self._planned = MetadataImage()
        """The same with what is on its way to the disk: what the next command is judged by."""
        self._clock = LoopClock(stats)
        self._producer_ids = commands.ProducerIdSource()
        self._applied: dict[int, int] = {}
        """The version that each shard process serves."""
        self._waiting: list[_WaitingReply] = []
        self._leaving: dict[str, int] = {}
        """Names of deleted topics, with the version from which on they are gone."""
        self._started_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def run(self) -> None:
        """Work until told to stop."""
        self._load()
        self._board.set_state(self._process, ProcessState.READY)
        while not self._stopping():
            self.cycle()
            if self._log.failed is not None:
                raise self._log.failed  # what is on disk decides: the next incarnation reads it
        self._log.close(now_ms=self._now_ms())
        self._stats.show()

    def cycle(self) -> None:
        """One pass."""
        self._clock.work(time.monotonic_ns() // 1000)
        for change in self._links.refresh():
            if change.old is not None:
                change.old.close()
            self._applied.pop(change.peer, None)
            self._send_deltas(change.new, deltas_of(self._image.version, self._image.records(), full=True))
        busy = False
        for peer, end in self._links.ends.items():
            try:
                messages = end.reader.read_all()
                for message in messages:
                    self._take(peer, end, message)
                busy = busy or bool(messages)
                end.reader.release()
            except (RingStale, RingClosed, RingCorrupt):
                continue  # its process is gone or mad: the supervisor will make a new one
        self._reply_applied()
        room = self._links.pump()
        self._stats.show()
        if busy:
            self._log.poll(now_ms=self._now_ms(), wait_s=0.0)
            return
        quiet = self._links.announce_wait()
        self._clock.rest(time.monotonic_ns() // 1000)
        wait_s = 0.0 if not quiet else IDLE_WAIT_S if room and not self._waiting else 0.005
        self._log.poll(now_ms=self._now_ms(), wait_s=wait_s)
        self._links.end_wait()

    # -- requests ----------------------------------------------------------------------------------------------

    def _take(self, peer: int, end: LinkEnd, message: Message) -> None:
        body = message.body
        api_key, partition = body[1], int.from_bytes(body[4:8], "little")
        if api_key == NodeApi.APPLIED:
            self._applied[peer] = unpack_u64(body[32:])[0]
            return
        correlation = int.from_bytes(body[8:16], "little")
        asker = Asker(end, int.from_bytes(body[16:24], "little"), correlation, api_key, partition)
        self._stats.counts["requests"] += 1
        try:
            if is_overdue(int.from_bytes(body[24:28], "little"), time.monotonic_ns() // 1_000_000):
                raise RequestTimeout(NOT_BEGUN)
            outcome = self._judge(asker, body[32:])
            self._carry_out(asker, outcome)
        except RinglogError as error:
            self._stats.counts["errors"] += 1
            asker.refuse(error)

    def _with_segment_bytes(self, request: CreateTopicRequest) -> CreateTopicRequest:
        """A topic keeps the size that was the node's default when it was made, as if it had been asked for; unless the
        defaults of topics have one, which counts."""
        size = self._config.default_segment_bytes
        if size == SEGMENT_BYTES_DEFAULT or "segment.bytes" in self._config.topic_defaults:
            return request
        return msgspec.structs.replace(request, config={"segment.bytes": str(size), **request.config})

    def _judge(self, asker: Asker, body: memoryview) -> Outcome:
        image, shards = self._planned, self._shards
        match asker.api_key:
            case Api.INIT_PRODUCER:
                return self._producer_ids.init_producer(image)
            case Api.CREATE_TOPIC:
                request = decode_body(body, CreateTopicRequest)
                if asker.session == 0 and request.name == OFFSETS_TOPIC:
                    # A network process asks for itself: a client needs it.
                    outcome = commands.create_offsets_topic(image, shards=shards)
                else:
                    outcome = commands.create_topic(
                        image,
                        self._with_segment_bytes(request),
                        shards=shards,
                        default_partitions=self._config.default_partitions,
                    )
                self._make_way(request.name, outcome.records)
                return outcome
            case Api.DELETE_TOPIC:
                return commands.delete_topic(image, decode_body(body, DeleteTopicRequest))
            case Api.ALTER_TOPIC:
                return commands.alter_topic(image, decode_body(body, AlterTopicRequest))
            case Api.ADD_PARTITIONS:
                return commands.add_partitions(image, decode_body(body, AddPartitionsRequest), shards=shards)
        raise UnsupportedVersion(f"api {asker.api_key} is not known to this node")

    def _make_way(self, name: str, records: list[MetadataRecord]) -> None:
        """A topic of a name that was there before must find no directory of the old one: neither one that its shard
        has not renamed yet, nor one that a shard left when it died."""
        self._leaving = {gone: version for gone, version in self._leaving.items() if version > self._served()}
        if name in self._leaving:
            raise PartitionBusy(f"topic {name!r} is still being deleted. Retry after a pause")
        for record in records:
            if isinstance(record, Partition):
                self._log.set_aside(TopicPartition(name, record.index))

    def _carry_out(self, asker: Asker, outcome: Outcome) -> None:
        if not outcome.records:
            # It was judged by what is on its way to the disk: an id of a block that is lost would be given twice.
            self._log.when_flushed(lambda: asker.reply_struct(outcome.reply(self._image)))
            return

        def flushed(version: int) -> None:
            self._publish(version, outcome.records)
            until_s = time.monotonic() + APPLY_PATIENCE_S
            self._waiting.append(_WaitingReply(version, asker, outcome.reply(self._image), until_s))

        self._append(outcome.records, flushed)

    def _append(self, records: list[MetadataRecord], flushed: Callable[[int], None]) -> None:
        version = self._log.append(records, flushed, now_ms=self._now_ms())
        for record in records:
            if isinstance(record, TopicRemoved):
                self._leaving[self._planned.topics_by_id[record.topic_id].name] = version
            self._planned.replay(record)

    def _publish(self, version: int, records: list[MetadataRecord]) -> None:
        """Flushed: now it is true, and everyone is told."""
        deltas = deltas_of(version, records, full=False)
        for delta in deltas:
            self._image.apply(delta)
        for end in self._links.ends.values():
            self._send_deltas(end, deltas)

    def _send_deltas(self, end: LinkEnd, deltas: list[Delta]) -> None:
        for delta in deltas:
            end.send(node_frame(NodeApi.DELTA, encode_delta(delta)))

    def _reply_applied(self) -> None:
        if not self._waiting:
            return
        served = self._served()
        now_s = time.monotonic()
        still: list[_WaitingReply] = []
        for waiting in self._waiting:
            if waiting.version <= served or waiting.until_s <= now_s:
                waiting.asker.reply_struct(waiting.body)
            else:
                still.append(waiting)
        self._waiting = still

    def _served(self) -> int:
        """The version that all living shards serve."""
        versions = [self._applied.get(p, -1) for p in self._shard_processes if self._living(p)]
        return min(versions, default=self._image.version)

    def _living(self, process: int) -> bool:
        return self._board.state(process) is ProcessState.READY

    # -- birth -------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        for version, record in self._log.replay():
            self._image.replay(record)
            self._planned.replay(record)
            self._image.version = version
        first: list[MetadataRecord] = []
        if not self._image.cluster_id:
            first.append(Identity(secrets.token_hex(8), 1))
        first += commands.rebalance(self._image, self._shards)
        if not first:
            return
        done: list[int] = []
        self._append(first, done.append)
        while not done:
            self._log.poll(now_ms=self._now_ms(), wait_s=0.1)
            if self._log.failed is not None:
                raise self._log.failed
        for delta in deltas_of(done[0], first, full=False):
            self._image.apply(delta)

    def _now_ms(self) -> int:
        return self._started_ms + time.monotonic_ns() // 1_000_000
