"""A client of one socket and no cleverness: sends the frames it is told to, and raises the errors it is answered with.

It shares the framing with the client library and nothing else, so that a judge who reads through it does not
depend on what is being judged.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import msgspec
import zmq

from ringlog.errors import RequestTimeout
from ringlog.net.framing import HEADER_BYTES, Acks, Api, Flag, Header, pack_header, unpack_header
from ringlog.net.messages import (
    EARLIEST,
    LATEST,
    CreateTopicRequest,
    ErrorReply,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    ListOffsetsReply,
    ListOffsetsRequest,
    MetadataReply,
    MetadataRequest,
    OffsetQuery,
    ProduceReply,
    TopicMetadata,
    TopicReply,
    decode_body,
    encode_body,
    unpack_fetch_reply,
)
from ringlog.net.wire_errors import error_by_number, raised
from ringlog.records.decode import Record, decode
from ringlog.records.encode import encode


class RawClient:
    """One DEALER. Requests are answered one after another; an error reply is raised as its typed error."""

    def __init__(self, endpoint: str, timeout_s: float = 5.0) -> None:
        self.timeout_s = timeout_s
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self._socket.connect(endpoint)
        self._correlation = 0
        self._received_bytes = 0

    # -- frames --------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Any bytes as one message."""
        self._socket.send(frame)

    def next_reply(self, timeout_s: float | None = None) -> tuple[Header, memoryview] | None:
        """Header and body of the next reply, or None when none comes in time."""
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        if not self._socket.poll(max(0, int(wait_s * 1000))):
            return None
        frame = self._socket.recv()
        self._received_bytes += len(frame)
        return unpack_header(frame), memoryview(frame)[HEADER_BYTES:]

    def request_frame(self, api: int, body: bytes = b"", **header: int) -> bytes:
        """A frame with the next correlation."""
        self._correlation += 1
        fields: dict[str, int] = {
            "correlation": self._correlation,
            "received": self._received_bytes,
            "deadline_ms": int(self.timeout_s * 1000),
            **header,
        }
        return pack_header(api, body_bytes=len(body), **fields) + body

    def request(self, api: int, body: bytes = b"", **header: int) -> memoryview:
        """Send one request and wait for its reply; replies to earlier ones are dropped."""
        self.send(self.request_frame(api, body, **header))
        return self.reply_to(self._correlation)

    def reply_to(self, correlation: int) -> memoryview:
        """The body of the reply to a request, or the error that it was answered with."""
        until = time.monotonic() + self.timeout_s
        while (reply := self.next_reply(until - time.monotonic())) is not None:
            header, body = reply
            if header.correlation != correlation:
                continue
            if header.flags & Flag.ERROR:
                raise raised(decode_body(body, ErrorReply))
            return body
        raise RequestTimeout(f"no reply within {self.timeout_s} s")

    def _ask(self, api: Api, body: msgspec.Struct, kind: type[Any], partition: int = 0) -> Any:
        return decode_body(self.request(api, encode_body(body), partition=partition), kind)

    # -- requests ------------------------------------------------------------------------------------------

    def metadata(self, topics: list[str] | None = None) -> MetadataReply:
        reply: MetadataReply = self._ask(Api.METADATA, MetadataRequest(topics), MetadataReply)
        return reply

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> TopicMetadata:
        body = CreateTopicRequest(name, partitions, config=config)
        reply: TopicReply = self._ask(Api.CREATE_TOPIC, body, TopicReply)
        return reply.topic

    def partition_ids(self, topic: str) -> list[int]:
        """The node-wide ids of a topic's partitions, by their index."""
        found = next(one for one in self.metadata([topic]).topics if one.name == topic)
        return [one.partition for one in sorted(found.partitions, key=lambda one: one.index)]

    def produce(self, partition: int, values: Sequence[bytes], **batch: Any) -> ProduceReply:
        """Append one batch; `batch` are arguments of `encode`."""
        data = bytes(encode(list(values), **{"timestamps": int(time.time() * 1000), **batch}))
        return self.produce_bytes(partition, data)

    def produce_bytes(self, partition: int, data: bytes) -> ProduceReply:
        """Append bytes as they are."""
        reply = self.request(Api.PRODUCE, data, partition=partition, flags=Acks.ALL)
        return ProduceReply.unpack(reply)

    def offset(self, partition: int, timestamp: int) -> int:
        """The offset that LATEST, EARLIEST or a time stands for."""
        body = ListOffsetsRequest([OffsetQuery(partition, timestamp)])
        reply: ListOffsetsReply = self._ask(Api.LIST_OFFSETS, body, ListOffsetsReply, partition)
        found = reply.found[0]
        if found.error:
            raise error_by_number(found.error, f"list offsets of partition {partition}")
        return found.offset

    def start_offset(self, partition: int) -> int:
        return self.offset(partition, EARLIEST)

    def end_offset(self, partition: int) -> int:
        return self.offset(partition, LATEST)

    def fetch(
        self, partition: int, offset: int, wait_ms: int = 0, bytes_max: int = 1 << 20
    ) -> FetchedPartition | None:
        """One full fetch of one partition; None when there is nothing to say of it. Its error is raised."""
        rows = [FetchPartition(partition, offset, bytes_max)]
        request = FetchRequest(0, wait_ms, 1, bytes_max, rows)
        reply = self.request(Api.FETCH, encode_body(request), partition=partition)
        row = next((row for row in unpack_fetch_reply(reply)[1] if row.partition == partition), None)
        if row is not None and row.error:
            raise error_by_number(row.error, f"fetch of partition {partition} at {offset}")
        return row

    def read(self, partition: int, offset: int, bytes_max: int = 1 << 20) -> tuple[list[Record], int]:
        """The records from an offset on that one fetch brings, and where to go on."""
        row = self.fetch(partition, offset, bytes_max=bytes_max)
        if row is None:
            return [], offset
        return [record for record in decode(row.data) if record.offset >= offset], row.next_offset

    # -- its end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._socket.close(0)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
