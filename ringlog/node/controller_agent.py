"""The loop of the controller process of a node by itself: commands → records → metadata log → deltas, then the reply.

A change is answered when the metadata log has it flushed and every living shard serves it (`audience.py`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from ringlog.config import NodeConfig
from ringlog.controller import commands
from ringlog.controller.commands import Outcome
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import (
    Identity,
    MetadataRecord,
    Partition,
    TopicRemoved,
    deltas_of,
)
from ringlog.errors import (
    InvalidRequest,
    PartitionBusy,
    RequestTimeout,
    RingClosed,
    RingCorrupt,
    RinglogError,
    RingStale,
    UnsupportedVersion,
)
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.group_messages import OFFSETS_TOPIC
from ringlog.net.messages import (
    AddPartitionsRequest,
    AlterTopicRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    InitProducerRequest,
    decode_body,
)
from ringlog.node.audience import Audience
from ringlog.node.metadata_log import MetadataLog
from ringlog.ring.board import Board, Links, ProcessState
from ringlog.ring.frame import is_overdue
from ringlog.ring.link import LinkEnd
from ringlog.ring.ring import Message
from ringlog.ring.stats import LoopClock, Stats
from ringlog.shard.asker import NOT_BEGUN, Asker
from ringlog.shard.commands import NodeApi, unpack_u64

IDLE_WAIT_S = 0.5


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
        self._audience = Audience(board, links)
        self._image = MetadataImage()
        """What is flushed: what everyone may know."""
        self._planned = MetadataImage()
        """The same with what is on its way to the disk: what the next command is judged by."""
        self._clock = LoopClock(stats)
        self._producer_ids = commands.ProducerIdSource()
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
        self._audience.welcome(lambda: deltas_of(self._image.version, self._image.records(), full=True))
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
        self._audience.answer_served(self._image.version)
        room = self._links.pump()
        self._stats.show()
        if busy:
            self._log.poll(now_ms=self._now_ms(), wait_s=0.0)
            return
        quiet = self._links.announce_wait()
        self._clock.rest(time.monotonic_ns() // 1000)
        wait_s = 0.0 if not quiet else IDLE_WAIT_S if room and not self._audience.has_waiting else 0.005
        self._log.poll(now_ms=self._now_ms(), wait_s=wait_s)
        self._links.end_wait()

    # -- requests ----------------------------------------------------------------------------------------------

    def _take(self, peer: int, end: LinkEnd, message: Message) -> None:
        body = message.body
        api_key, partition = body[1], int.from_bytes(body[4:8], "little")
        if api_key == NodeApi.APPLIED:
            self._audience.applied(peer, unpack_u64(body[32:])[0])
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

    def _judge(self, asker: Asker, body: memoryview) -> Outcome:
        image, shards = self._planned, self._shards
        match asker.api_key:
            case Api.INIT_PRODUCER:
                decode_body(body, InitProducerRequest)
                return self._producer_ids.init_producer(image)
            case Api.CREATE_TOPIC:
                request = decode_body(body, CreateTopicRequest)
                if asker.session == 0 and request.name == OFFSETS_TOPIC:
                    # A network process asks for itself: a client needs it.
                    outcome = commands.create_offsets_topic(image, shards=shards)
                else:
                    outcome = commands.create_topic(
                        image,
                        request,
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
            case Api.REASSIGN | Api.DRAIN_NODE | Api.ALTER_CLUSTER:
                raise InvalidRequest("this node is by itself: there is no other one to move anything to")
        raise UnsupportedVersion(f"api {asker.api_key} is not known to this node")

    def _make_way(self, name: str, records: list[MetadataRecord]) -> None:
        """A topic of a name that was there before must find no directory of the old one: neither one that its shard
        has not renamed yet, nor one that a shard left when it died."""
        served = self._audience.served(self._image.version)
        self._leaving = {gone: version for gone, version in self._leaving.items() if version > served}
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
            self._audience.reply_when_served(version, asker, outcome.reply(self._image))

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
        self._audience.tell(deltas)

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
