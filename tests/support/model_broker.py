"""A node as simple as it can be: logs in memory, and the answers that the wire's contract promises."""

from __future__ import annotations

import struct

from ringlog.errors import FetchSessionLost, OffsetOutOfRange, RinglogError, StaleMetadata, UnknownTopic
from ringlog.model import Codec
from ringlog.net.framing import Api
from ringlog.net.messages import (
    EARLIEST,
    FETCH_ROW_PACK,
    LATEST,
    FetchRequest,
    FoundOffset,
    ListOffsetsReply,
    ListOffsetsRequest,
    MetadataReply,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
    decode_body,
    encode_body,
    pack_fetch_head,
)
from ringlog.net.wire_errors import number_of
from ringlog.records.encode import encode


def value_of(partition: int, offset: int) -> bytes:
    """What the record at an offset says: whoever reads it knows whether it is the right one."""
    return struct.pack("<IQ", partition, offset)


class ModelBroker:
    """Topic "t" with some partitions; partition i has the node-wide id 100 + i, on lane i % lanes."""

    def __init__(self, partitions: int = 1, lanes: int = 1, nodes: int = 0) -> None:
        """With `nodes`, a cluster: partition i is led by node 1 + i % nodes, until `lead` says otherwise."""
        self.lanes = lanes
        self._nodes = nodes
        self._leaders = {i: (1 + i % nodes, 0) for i in range(partitions)} if nodes else {}
        self.topic_id = 1
        self.first_id = 100
        self.deleted = False
        self.batches: list[list[tuple[int, int, bytes]]] = [[] for _ in range(partitions)]
        """Per partition: base offset, next offset and bytes of each batch."""
        self.log_start = [0] * partitions
        self.errors: dict[int, RinglogError] = {}
        """By partition: what its rows say instead of data."""
        self.sessions: dict[int, dict[int, tuple[int, int]]] = {}
        self._next_session = 1

    def append(self, partition: int, count: int, codec: Codec = Codec.NONE) -> None:
        """A batch of records, whose values are their places."""
        base = self.end(partition)
        values = [value_of(partition, offset) for offset in range(base, base + count)]
        data = encode(values, timestamps=1000 + base, base_offset=base, codec=codec)
        self.batches[partition].append((base, base + count, bytes(data)))

    def end(self, partition: int) -> int:
        batches = self.batches[partition]
        return batches[-1][1] if batches else 0

    def truncate(self, partition: int, start: int) -> None:
        """Retention: records below an offset are no more."""
        self.log_start[partition] = start
        self.batches[partition] = [batch for batch in self.batches[partition] if batch[1] > start]

    def delete(self) -> None:
        """The topic is no more, until it is made anew."""
        self.deleted = True

    def make_anew(self) -> None:
        """Another topic of the same name, empty."""
        self.deleted = False
        self.topic_id, self.first_id = self.topic_id + 1, self.first_id + 100
        self.batches = [[] for _ in self.batches]

    def metadata(self) -> TopicMetadata:
        if self.deleted:
            return TopicMetadata("t", UnknownTopic.code, 0, [], {})
        places = [
            PartitionMetadata(i, self.first_id + i, i % self.lanes, 0)
            if not self._nodes
            else self._replicated(i, *self._leaders[i])
            for i in range(len(self.batches))
        ]
        return TopicMetadata("t", "", self.topic_id, places, {})

    def _replicated(self, i: int, leader: int, epoch: int) -> PartitionMetadata:
        everyone = list(range(1, self._nodes + 1))
        lanes = [256 * node for node in everyone]
        return PartitionMetadata(i, self.first_id + i, 256 * leader, leader, epoch, everyone, everyone, lanes)

    def lead(self, partition: int, node: int) -> None:
        """Let another node lead; -1: nobody."""
        self._leaders[partition] = (node, self._leaders[partition][1] + 1)

    def answer(self, api: int, body: bytes) -> bytes | None:
        """The body of the reply; None: a fetch that has to wait. Raises what an error reply would say."""
        if api == Api.METADATA:
            decode_body(body, MetadataRequest)
            return encode_body(MetadataReply("c", 0, 1, [], "h", 1, [self.metadata()]))
        if api == Api.LIST_OFFSETS:
            return self._list_offsets(decode_body(body, ListOffsetsRequest))
        assert api == Api.FETCH
        return self._fetch(decode_body(body, FetchRequest))

    def _list_offsets(self, request: ListOffsetsRequest) -> bytes:
        found = []
        for query in request.queries:
            i = query.partition - self.first_id
            if self.deleted or not 0 <= i < len(self.batches):
                found.append(FoundOffset(query.partition, number_of(StaleMetadata("")), -1, -1))
                continue
            start, end = self.log_start[i], self.end(i)
            at = {EARLIEST: start, LATEST: end}.get(query.timestamp, max(start, query.timestamp - 1000))
            none = at >= end and query.timestamp >= 0
            found.append(FoundOffset(query.partition, 0, -1 if none else at, -1 if none else 1000 + at))
        return encode_body(ListOffsetsReply(found))

    def _fetch(self, request: FetchRequest) -> bytes | None:
        number = request.session
        if number == 0:
            number, self._next_session = self._next_session, self._next_session + 1
            self.sessions[number] = {}
        elif number not in self.sessions:
            raise FetchSessionLost("no such session")
        session = self.sessions[number]
        for forgotten in request.forget:
            session.pop(forgotten, None)
        session.update((p.partition, (p.offset, p.bytes_max)) for p in request.partitions)
        rows, data, budget = [], [], request.bytes_max
        for partition, (offset, most) in session.items():
            error, found, next_offset = self._read(partition - self.first_id, offset, min(most, budget))
            if not error and not found:
                continue
            i = partition - self.first_id
            known = 0 <= i < len(self.batches)
            start, end = (self.log_start[i], self.end(i)) if known else (-1, -1)
            rows.append(FETCH_ROW_PACK.pack(partition, error, 0, start, end, next_offset, len(found), 0))
            data.append(found)
            budget -= len(found)
        if not rows and request.wait_ms:
            return None
        return pack_fetch_head(number, rows) + b"".join(data)

    def _read(self, i: int, offset: int, budget: int) -> tuple[int, bytes, int]:
        if self.deleted or not 0 <= i < len(self.batches):
            return number_of(StaleMetadata("")), b"", offset
        if i in self.errors:
            return number_of(self.errors[i]), b"", offset
        if not self.log_start[i] <= offset <= self.end(i):
            return number_of(OffsetOutOfRange("")), b"", offset
        if budget <= 0:
            return 0, b"", offset
        found, next_offset = b"", offset
        for _, behind, data in self.batches[i]:
            if behind <= offset:
                continue
            if found and len(found) + len(data) > budget:
                break
            found, next_offset = found + data, behind
        return 0, found, next_offset

    def whole_reply(self, api: int, body: bytes) -> bytes:
        """As `answer`, and a fetch that would have to wait is answered with nothing, as when its time is over."""
        reply = self.answer(api, body)
        if reply is None:
            return pack_fetch_head(decode_body(body, FetchRequest).session or self._next_session - 1, [])
        return reply
