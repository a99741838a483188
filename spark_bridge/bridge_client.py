"""A task's side of the bridge: asks for its range piece by piece, one piece ahead of the one that is worked on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from ringlog.client.admin import Admin
from ringlog.client.connection import Connection
from ringlog.client.settings import AdminSettings, endpoints_of
from ringlog.errors import NodeUnavailable, RinglogError, check
from ringlog.net.framing import Header
from ringlog.net.session import Request
from spark_bridge.bridge_wire import CREDIT_BYTES, READ, ReadRequest, unpack_reply
from spark_bridge.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow

_PROBE_S = 1.0
_PATIENCE_S = 20.0
"""For one piece. A bridge that is well answers in milliseconds; without it the brokers are read."""


def unreachable(address: str) -> str | None:
    """Why nobody can be reached at a bridge's address; None when somebody listens there. Answers at once, where a
    question to a client's connection would wait for a bridge that may yet come."""
    endpoint = endpoints_of(address)[0]
    if endpoint.startswith("tcp://"):
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _PROBE_S).close()
        except OSError as refused:
            return str(refused)
    return None


def bridge_cluster(address: str, bootstrap: str) -> str | None:
    """Why a bridge cannot be used for a cluster; None when it can."""
    why = unreachable(address)
    if why is not None:
        return why
    try:
        with Admin(bootstrap=address, request_timeout_ms=int(_PROBE_S * 5000)) as there:
            bridged = there.describe_cluster().cluster_id
        with Admin(bootstrap=bootstrap) as node:
            wanted = node.describe_cluster().cluster_id
    except RinglogError as error:
        return str(error)
    return None if bridged == wanted else "it belongs to another cluster"


def read_bridged(
    address: str, part: OffsetRange, columns: tuple[str, ...]
) -> Iterator[tuple[pyarrow.RecordBatch, int]]:
    """Decoded batches of a range in order, each with the offset behind it. RinglogError when the bridge fails."""
    import pyarrow as pa

    from spark_bridge.arrow_rows import decoded_schema

    why = unreachable(address)
    if why is not None:
        raise NodeUnavailable(f"no bridge at {address}: {why}")
    schema = decoded_schema(columns)
    connection = Connection(AdminSettings(bootstrap=address))
    answers: SimpleQueue[memoryview | RinglogError] = SimpleQueue()

    def ask(start: int) -> None:
        question = ReadRequest(
            part.topic, part.partition, start, part.end, list(columns), CREDIT_BYTES, part.topic_id
        )
        body = msgspec.msgpack.encode(question)
        connection.send(Request(READ, body, on_reply, answers.put, timeout_s=_PATIENCE_S))

    def on_reply(header: Header, body: memoryview) -> None:
        answers.put(body)

    try:
        position = part.start
        ask(position)
        while position < part.end:
            answer = answers.get()
            if isinstance(answer, RinglogError):
                raise answer
            reply = unpack_reply(answer)
            check(reply.next_offset > position, "an answer of the bridge goes on")
            position = reply.next_offset
            if position < part.end:
                ask(position)
            yield pa.ipc.read_record_batch(pa.py_buffer(reply.batch), schema), position
    finally:
        connection.close()
