"""A node in a thread: a ROUTER that keeps topics and batches in memory, for tests of clients alone."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import zmq

from ringlog import limits
from ringlog.errors import OutOfOrderSequence, RinglogError, TopicExists, UnknownTopic
from ringlog.model import Durability
from ringlog.net import messages
from ringlog.net.framing import Acks, Api, Flag, Header, pack_header, unpack_header
from ringlog.net.host import host_id
from ringlog.net.messages import decode_body, encode_body
from ringlog.net.wire_errors import error_reply
from ringlog.records.decode import decode
from ringlog.records.scan import check, stamp


class MemoryLog:
    """One partition: dedupes as a node does, and keeps what was appended."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.next_offset = 0
        self.last: dict[int, list[tuple[int, int, int]]] = defaultdict(list)

    def append(self, batch: bytearray) -> tuple[int, int]:
        row = check(batch, gapless=True)[0]
        producer, first, count = int(row["producer_id"]), int(row["base_sequence"]), int(row["record_count"])
        if producer >= 0:
            seen = self.last[producer]
            for known_first, known_count, offset in seen:
                if (known_first, known_count) == (first, count):
                    return offset, 1
            expected = seen[-1][0] + seen[-1][1] if seen else 0
            if first != expected:
                raise OutOfOrderSequence(f"sequence {first}, and {expected} comes next")
        base = self.next_offset
        self.next_offset = stamp(batch, base_offset=base, leader_epoch=0)
        self.batches.append(bytes(batch))
        if producer >= 0:
            self.last[producer] = [*self.last[producer], (first, count, base)][
                -limits.PRODUCER_BATCHES_KEPT :
            ]
        return base, 0


class RouterNode:
    """Answers the apis of a client. `before` may answer a request, raise for it, or return b"" to drop it."""

    def __init__(self, endpoint="tcp://127.0.0.1:*", ipc=None, partitions=4):
        self.context = zmq.Context()
        self.default_partitions = partitions
        self.ipc = ipc
        self.topics: dict[str, messages.TopicMetadata] = {}
        self.topic_defaults: dict[str, str] = {}
        self.logs: dict[int, MemoryLog] = defaultdict(MemoryLog)
        self.seen: list[Header] = []
        self.before = lambda header, body: None
        self.producer_ids = 1000
        self.delay_s = 0.0
        self.socket, self.endpoint = self._bind(endpoint)
        self.bootstrap = self.endpoint.removeprefix("tcp://")
        self._start()

    def _bind(self, endpoint):
        socket = self.context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.LINGER, 0)
        for _ in range(100):
            try:
                socket.bind(endpoint)
                break
            except zmq.ZMQError:
                time.sleep(0.02)
        bound = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        if self.ipc:
            socket.bind(self.ipc)
        return socket, bound

    def _start(self):
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="router-node")
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            if not self.socket.poll(20):
                continue
            *route, frame = self.socket.recv_multipart()
            header = unpack_header(frame)
            self.seen.append(header)
            if self.delay_s:
                time.sleep(self.delay_s)
            try:
                body = self.before(header, frame[32:])
                if body is None:
                    body = self.answer(header, frame[32:])
                flags = Flag.REPLY
            except RinglogError as error:
                body, flags = encode_body(error_reply(error)), Flag.REPLY | Flag.ERROR
            if body == b"" or (header.api_key == Api.PRODUCE and header.flags & 3 == Acks.NONE):
                continue
            head = pack_header(
                header.api_key, correlation=header.correlation, body_bytes=len(body), flags=flags
            )
            self.socket.send_multipart([*route, head + body])
        self.socket.close(0)

    def answer(self, header: Header, body: bytes) -> bytes:
        match header.api_key:
            case Api.METADATA:
                return self._metadata(decode_body(body, messages.MetadataRequest))
            case Api.PRODUCE:
                base, repeated = self.logs[header.partition].append(bytearray(body))
                return messages.ProduceReply(base, -1, 0, Durability.FLUSHED, repeated).pack()
            case Api.INIT_PRODUCER:
                self.producer_ids += 1
                return encode_body(messages.InitProducerReply(self.producer_ids, 0))
            case Api.CREATE_TOPIC:
                asked = decode_body(body, messages.CreateTopicRequest)
                if asked.name in self.topics:
                    raise TopicExists(asked.name)
                return encode_body(
                    messages.TopicReply(self.create(asked.name, asked.partitions, asked.config), 1)
                )
            case Api.DELETE_TOPIC:
                name = decode_body(body, messages.DeleteTopicRequest).name
                return encode_body(messages.TopicReply(self._known(name, pop=True), 2))
            case Api.ALTER_TOPIC:
                change = decode_body(body, messages.AlterTopicRequest)
                topic = self._known(change.name)
                for key, value in change.config.items():
                    topic.config.pop(key, None) if value is None else topic.config.update({key: value})
                return encode_body(messages.TopicReply(topic, 3))
            case Api.ADD_PARTITIONS:
                more = decode_body(body, messages.AddPartitionsRequest)
                topic = self._known(more.name, pop=True)
                return encode_body(
                    messages.TopicReply(self.create(more.name, more.partitions, topic.config), 4)
                )
            case Api.DELETE_RECORDS:
                starts = decode_body(body, messages.DeleteRecordsRequest).partitions
                ends = [
                    self.logs[one.partition].next_offset if one.offset < 0 else one.offset for one in starts
                ]
                return encode_body(
                    messages.DeleteRecordsReply(
                        [
                            messages.DeletedRecords(one.partition, 0, end)
                            for one, end in zip(starts, ends, strict=True)
                        ]
                    )
                )
            case Api.DESCRIBE_PARTITIONS:
                return self._describe(decode_body(body, messages.DescribePartitionsRequest))
        raise AssertionError(header)

    def create(self, name, partitions=-1, config=None) -> messages.TopicMetadata:
        count = self.default_partitions if partitions < 0 else partitions
        first = 100 * (len(self.topics) + 1)
        self.topics[name] = messages.TopicMetadata(
            name,
            "",
            first,
            [messages.PartitionMetadata(i, first + i, i % 2, 0) for i in range(count)],
            dict(config or {}),
        )
        return self.topics[name]

    def _known(self, name, pop=False):
        if name not in self.topics:
            raise UnknownTopic(name)
        return self.topics.pop(name) if pop else self.topics[name]

    def _metadata(self, asked: messages.MetadataRequest) -> bytes:
        names = list(self.topics) if asked.topics is None else asked.topics
        topics = []
        for name in names:
            if name not in self.topics and asked.create:
                self.create(name)
            missing = messages.TopicMetadata(name, UnknownTopic.code, 0, [], {})
            topics.append(self.topics.get(name, missing))
        endpoints = [self.endpoint, self.ipc] if self.ipc else [self.endpoint]
        return encode_body(
            messages.MetadataReply(
                "test", 0, 1, endpoints, host_id(), limits.FRAME_BYTES_MAX, topics, self.topic_defaults
            )
        )

    def _describe(self, asked: messages.DescribePartitionsRequest) -> bytes:
        rows = []
        for partition in asked.partitions:
            log = self.logs[partition]
            size = sum(map(len, log.batches))
            rows.append(
                messages.PartitionDescription(
                    partition, 0, 0, log.next_offset, log.next_offset, size, 1, "open"
                )
            )
        return encode_body(messages.DescribePartitionsReply(rows))

    def restart(self):
        """Go away and come back at the same address, as a net process that dies."""
        self.pause()
        self.socket, _ = self._bind(self.endpoint)
        self._start()

    def pause(self):
        self._stop.set()
        self._thread.join()

    def close(self):
        if not self._stop.is_set():
            self.pause()
        self.context.term()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


__all__ = ["MemoryLog", "RouterNode"]


def records(node: RouterNode, topic: str = "t"):
    """Partition index → records in order."""
    found = defaultdict(list)
    for partition in node.topics[topic].partitions:
        for batch in node.logs[partition.partition].batches:
            found[partition.index] += list(decode(batch))
    return found


def values(node: RouterNode, topic: str = "t"):
    return [record.value for some in records(node, topic).values() for record in some]
