"""What two nodes say to each other before anything else, and who is let in. Pure.

A node calls every other one of its cluster, and each call begins with a hello. It says which node of which cluster
calls, in which of its lives (the broker epoch), and whom it means: an address that was given to another node by
mistake, a node of another cluster and a former life of a node are all found out here, and never reach a shard.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from ringlog.controller.image import MetadataImage
from ringlog.errors import CorruptFrame, InvalidRequest, RinglogError, StaleBroker, UnsupportedVersion
from ringlog.limits import NODE_ID_MAX
from ringlog.net.framing import Flag, Header
from ringlog.net.messages import encode_body
from ringlog.net.peer_near import Offer
from ringlog.net.wire_errors import error_reply
from ringlog.ring.frame import frame_header
from ringlog.shard.commands import NodeApi

PEER_VERSION = 1
"""Of the frames between nodes."""

_NodeId = Annotated[int, msgspec.Meta(ge=1, le=NODE_ID_MAX)]
_Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Hello(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The caller's first word, and what is said in return by a node that lets it in."""

    version: int
    cluster_id: str
    node_id: _NodeId
    broker_epoch: _Epoch
    to: _NodeId
    """The node that is meant."""
    shares: Offer | None = None
    """Memory for answers; in return the same, if answers are put there."""


_decoder = msgspec.msgpack.Decoder(Hello)


class Me(NamedTuple):
    """Which node this is, in which of its lives."""

    cluster_id: str
    node_id: int
    broker_epoch: int

    def hello(self, to: int, shares: Offer | None = None) -> bytes:
        """The body that tells another node who this one is."""
        return msgspec.msgpack.encode(
            Hello(PEER_VERSION, self.cluster_id, self.node_id, self.broker_epoch, to, shares)
        )


def me_of(image: MetadataImage) -> Me | None:
    """This node as the metadata knows it; None before it is registered."""
    broker = image.brokers.get(image.node_id)
    if not image.cluster_id or broker is None:
        return None
    return Me(image.cluster_id, image.node_id, broker.broker_epoch)


def decode_hello(body: bytes | memoryview) -> Hello:
    """The body of a hello, or of the answer to one; raises CorruptFrame."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise CorruptFrame("hello", 0, str(wrong)) from None


def judge(hello: Hello, me: Me, image: MetadataImage) -> None:
    """Raise what the other side is to be told, unless it is the node of this cluster that it must be.

    A life that is later than the one that the metadata knows here is let in: the news are on their way, and whatever it
    sends carries its epoch and is judged by that.
    """
    if hello.version != PEER_VERSION:
        raise UnsupportedVersion(
            f"nodes speak version {PEER_VERSION} with each other here, not {hello.version}"
        )
    if hello.cluster_id != me.cluster_id:
        raise InvalidRequest(
            f"node {hello.node_id} is of cluster {hello.cluster_id}, and node {me.node_id} of {me.cluster_id}. "
            "Check --cluster and the data directories"
        )
    if hello.to != me.node_id:
        raise InvalidRequest(
            f"node {hello.to} was called, and this is node {me.node_id}. Check the addresses in --cluster"
        )
    known = image.brokers.get(hello.node_id)
    if known is None or hello.node_id == me.node_id:
        raise StaleBroker(f"node {hello.node_id} is not known to node {me.node_id} as another one. Retry")
    if hello.broker_epoch < known.broker_epoch:
        raise StaleBroker(
            f"node {hello.node_id} calls from a former life, {hello.broker_epoch}; it is at {known.broker_epoch} by now"
        )


def hello_frame(me: Me, to: int, flags: int = 0, *, shares: Offer | None = None) -> bytes:
    """A hello, or with `Flag.REPLY` the answer to one."""
    body = me.hello(to, shares)
    header = frame_header(
        api_key=NodeApi.PEER_HELLO, partition=0, correlation=0, flags=flags, body_bytes=len(body)
    )
    return header + body


def error_frame(api: NodeApi, error: RinglogError, *, correlation: int = 0, session: int = 0) -> bytes:
    """The answer to a hello or a fetch that is refused."""
    body = encode_body(error_reply(error))
    header = frame_header(
        api_key=api,
        partition=0,
        correlation=correlation,
        session=session,
        flags=Flag.REPLY | Flag.ERROR,
        body_bytes=len(body),
    )
    return header + body


def passed_on(header: Header, *, session: int, flags: int, body_bytes: int) -> bytes:
    """The header of a frame that goes on to somebody else, for whom its session means something."""
    return frame_header(
        api_key=header.api_key,
        partition=header.partition,
        correlation=header.correlation,
        session=session,
        flags=flags,
        body_bytes=body_bytes,
    )
