"""The bridge process: reads the log, decodes it once, and serves ranges of it to executors as Arrow."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from ringlog.client.admin import Admin
from ringlog.errors import CorruptFrame, RinglogError, UnsupportedVersion
from ringlog.limits import FRAME_BYTES_MAX, MIB
from ringlog.model import TopicPartition
from ringlog.net.framing import Api, Flag, Header, pack_header, unpack_header
from ringlog.net.host import host_id
from ringlog.net.messages import MetadataReply, decode_body, encode_body
from ringlog.net.wire_errors import error_reply
from spark_bridge.arrow_rows import decoded_columns
from spark_bridge.bridge_cache import HotRanges, Piece, Wanted
from spark_bridge.bridge_desk import Ask, Desk, Place
from spark_bridge.bridge_pieces import answer_frame
from spark_bridge.bridge_readers import Readers
from spark_bridge.bridge_socket import BridgeSocket
from spark_bridge.bridge_wire import READ, ReadRequest

HOT_BYTES = 256 * MIB
_WAIT_MS = 500

log = logging.getLogger(__name__)


class Bridge:
    """One process's work, on one thread; readers have threads of their own."""

    def __init__(
        self, bootstrap: str, endpoints: list[str], stopping: Callable[[], bool], hot_bytes: int = HOT_BYTES
    ) -> None:
        with Admin(bootstrap=bootstrap) as admin:
            self._cluster = admin.describe_cluster()
        self._stopping = stopping
        self._socket = BridgeSocket(endpoints)
        self._readers = Readers(bootstrap, threads=len(os.sched_getaffinity(0)))
        self._hot = HotRanges(hot_bytes)
        self._desk = Desk()
        self._finished: deque[tuple[Place, Future[Piece]]] = deque()

    @property
    def endpoints(self) -> list[str]:
        return self._socket.endpoints

    def run(self) -> None:
        """Work until told to stop."""
        try:
            while not self._stopping():
                self._socket.wait(_WAIT_MS)
                self.turn()
        finally:
            self._readers.close()
            self._socket.close()

    def turn(self) -> None:
        """One pass: what finished, what came, who left."""
        while self._finished:
            self._arrived(*self._finished.popleft())
        for client, frame in self._socket.receive():
            self._take(client, frame)
        for client in self._socket.left():
            self._desk.left(client)
            self._readers.release(client)
        self._readers.go_on(self._desk.is_wanted)
        self._readers.expire(time.monotonic())

    # -- questions ---------------------------------------------------------------------------------------------

    def _take(self, client: bytes, frame: memoryview) -> None:
        correlation = 0
        try:
            header = unpack_header(frame)
            correlation = header.correlation
            self._answer(client, header, frame[len(frame) - header.body_bytes :])
        except RinglogError as error:
            self._refuse(client, correlation, error)

    def _answer(self, client: bytes, header: Header, body: memoryview) -> None:
        if header.api_key == Api.METADATA:
            cluster = self._cluster
            reply = MetadataReply(
                cluster.cluster_id, cluster.node_id, 0, self.endpoints, host_id(), FRAME_BYTES_MAX, []
            )
            data = encode_body(reply)
            self._send(client, header.api_key, header.correlation, data)
        elif header.api_key == READ:
            request = decode_body(body, ReadRequest)
            if tuple(request.columns) != decoded_columns(request.columns) or request.start >= request.end:
                raise CorruptFrame("body", 32, f"no range and columns of a log: {request}")
            self._read(Ask(client, header.correlation, request))
        else:
            raise UnsupportedVersion(f"api {header.api_key} is not known to a bridge: ask a node")

    def _read(self, ask: Ask) -> None:
        request = ask.request
        tp = TopicPartition(request.topic, request.partition)
        wanted = Wanted(tp, tuple(request.columns), request.topic_id)
        piece = self._hot.find(wanted, request.start)
        if piece is not None:
            self._socket.send(ask.client, answer_frame(piece, request, ask.correlation))
            return
        place = Place(wanted, request.start)
        if self._desk.wait(place, ask):
            self._readers.fetch(place, ask.client, self._finish)

    def _finish(self, place: Place, future: Future[Piece]) -> None:
        self._finished.append((place, future))
        self._socket.wake()

    def _arrived(self, place: Place, future: Future[Piece]) -> None:
        asks = self._desk.arrived(place)
        try:
            piece = future.result()
        except RinglogError as error:
            for ask in asks:
                self._refuse(ask.client, ask.correlation, error)
            return
        self._hot.put(place.wanted, piece)
        for ask in asks:
            self._socket.send(ask.client, answer_frame(piece, ask.request, ask.correlation))

    # -- replies -----------------------------------------------------------------------------------------------

    def _refuse(self, client: bytes, correlation: int, error: RinglogError) -> None:
        log.info("a question is refused: %s", error)
        self._send(client, READ, correlation, encode_body(error_reply(error)), int(Flag.ERROR))

    def _send(self, client: bytes, api_key: int, correlation: int, body: bytes, flags: int = 0) -> None:
        header = pack_header(
            api_key, correlation=correlation, body_bytes=len(body), flags=int(Flag.REPLY) | flags
        )
        self._socket.send(client, header + body)
