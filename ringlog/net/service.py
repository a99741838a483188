"""What a network process does with frames: checks them, routes them to rings, and sends the answers back.

No socket here: `router.py` gives it messages and takes them. It keeps an image of the metadata, from which it
knows which shard serves a partition, and answers questions about topics itself.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ringlog.controller.image import MetadataImage
from ringlog.controller.records import decode_delta
from ringlog.errors import (
    ControllerUnavailable,
    InvalidRequest,
    LimitExceeded,
    NotLeader,
    Overloaded,
    RinglogError,
    ShardUnavailable,
    StaleMetadata,
    UnsupportedVersion,
)
from ringlog.limits import (
    BAD_FRAME_REPLY_BYTES_MAX,
    CONTROL_BODY_BYTES_MAX,
    HELD_FETCHES_MAX,
    MIB,
    NEAR_MEMORIES_MAX,
)
from ringlog.net.framing import (
    CONTROLLER_APIS,
    HEADER_BYTES,
    SHARD_APIS,
    Acks,
    Api,
    Flag,
    Header,
    pack_header,
    unpack_header,
)
from ringlog.net.messages import ShareMemoryReply, ShareMemoryRequest, decode_body, encode_body
from ringlog.net.metadata_desk import MetadataDesk, NodeFacts
from ringlog.net.near import SharedMemory, land, landed_reply, near_fetch, near_request
from ringlog.net.peers import HeldFetch, Peer, Peers, PendingRequest
from ringlog.net.wire_errors import error_reply
from ringlog.ring.drain import NO_PARTITION
from ringlog.ring.frame import due_at
from ringlog.ring.link import LinkEnd
from ringlog.ring.ring import Message
from ringlog.ring.standstill import StandstillWatch
from ringlog.ring.stats import Stats
from ringlog.shard.commands import LENT, NodeApi, node_frame, pack_u64, unpack_lent

_STAMP = struct.Struct("<QI")
"""What a network process writes into a header: the client's session, and when it gives up."""
_STAMP_AT = 16
_NO_STAMP = bytes(_STAMP.size)
_ROUTE = struct.Struct("<BBHIQQ")
"""The beginning of a header, up to the session: what says where a reply goes."""
_PRODUCE, _FETCH, _DELTA = int(Api.PRODUCE), int(Api.FETCH), int(NodeApi.DELTA)
_ACKS_MASK, _NEAR, _OF_REPLIES = int(Flag.ACKS_MASK), int(Flag.NEAR), Flag.REPLY | Flag.ERROR
"""As plain numbers: a member of an enum costs as much as three calls at each use."""
STANDSTILL_LOOK_MS = 500
"""Between two looks at whether shards stand still, at most."""
OVERFLOW_BYTES_MAX = 64 * MIB
"""Requests that wait for room in a ring, per process that serves them."""


class Sender(Protocol):
    """Sends one message to a client; False when there is no such client any more."""

    def __call__(self, routing_id: bytes, message: bytes | bytearray) -> bool: ...


class NetService:
    """The work of one network process between its socket and its rings."""

    def __init__(
        self,
        facts: NodeFacts,
        stats: Stats,
        *,
        controller: int,
        shard_process: Callable[[int], int],
        send: Sender,
        intact: Callable[[int], bool],
        near: Callable[[bytes, ShareMemoryRequest], SharedMemory],
    ) -> None:
        """`intact`: whether the incarnation of a process that this one speaks with is still the latest. `near`: the
        memory that a client offers, looked at."""
        self.peers = Peers()
        self.image = MetadataImage()
        self.has_image = False
        self._stats = stats
        self._controller = controller
        self._shard_process = shard_process
        self._send = send
        self._intact = intact
        self._near = near
        self._ends: dict[int, LinkEnd] = {}
        self._regions: dict[int, memoryview] = {}
        self._processes: dict[int, int] = {}
        """By partition, as the image says: found once, and forgotten when the image changes."""
        self.overflow: dict[int, deque[bytes]] = {}
        """Requests that wait for room, by the process that serves them: only where some wait."""
        self._overflow_bytes: dict[int, int] = {}
        self._releases: dict[int, list[int]] = {}
        page = stats.page
        self._standstill = StandstillWatch(lambda: page.passes(0, len(page.rows)), look_ms=STANDSTILL_LOOK_MS)
        self._metadata = MetadataDesk(
            facts,
            self.image,
            self.peers,
            controller=controller,
            find_controller=lambda: self._end_of(controller),
            answer=self._answer,
        )
        self.now_us = 0
        """The time of this cycle: monotonic."""

    # -- from clients ------------------------------------------------------------------------------------------

    def take(self, routing_id: bytes, frame: memoryview) -> None:
        """One message of a client, in memory that is the node's: its header is written to."""
        peer = self.peers.seen(routing_id, self.now_us // 1000)
        counts = self._stats.counts
        counts["requests"] += 1
        try:
            header = unpack_header(frame)
        except RinglogError as error:
            self._refuse_frame(peer, frame, error)
            return
        self.peers.note_received(peer, header.received)
        if peer.deaf:
            counts["refused"] += 1
            return
        try:
            self._route(peer, header, frame)
        except RinglogError as error:
            self._refuse(peer, header, error)
        if peer.held and not peer.must_hold:
            self._take_held(peer)

    def _route(self, peer: Peer, header: Header, frame: memoryview) -> None:
        api = header.api_key
        if header.flags & _OF_REPLIES:
            raise InvalidRequest("a request has neither the REPLY nor the ERROR flag")
        if api != _PRODUCE and header.body_bytes > CONTROL_BODY_BYTES_MAX:
            raise InvalidRequest(
                f"a control body of {header.body_bytes} bytes; at most {CONTROL_BODY_BYTES_MAX} are taken"
            )
        due_ms = due_at(self.now_us // 1000, header.deadline_ms)
        if api in SHARD_APIS:
            if api == _FETCH:
                self._take_fetch(peer, header, frame, due_ms)
                return
            nbytes = len(frame)
            is_near = api == _PRODUCE and header.flags & _NEAR
            if is_near:
                frame, nbytes = near_request(peer.near, header, frame)
            self._forward(peer, header, frame, self._process_of(header.partition), due_ms, nbytes)
            if is_near:
                self._stats.counts["near_bytes_in"] += nbytes
        elif api == Api.METADATA:
            self._metadata.take(peer, header, frame[HEADER_BYTES:], due_ms, self.now_us)
        elif api == Api.SHARE_MEMORY:
            self._share_memory(peer, header, decode_body(frame[HEADER_BYTES:], ShareMemoryRequest))
        elif api in CONTROLLER_APIS:
            self._forward(peer, header, frame, self._controller, due_ms, len(frame))
        else:
            raise UnsupportedVersion(f"api {api} is not known to this node")

    def _take_fetch(self, peer: Peer, header: Header, frame: memoryview, due_ms: int) -> None:
        """Forward it, or hold it back while too much that its client asked for is on its way."""
        landing = None
        if header.flags & _NEAR:
            frame, landing = near_fetch(peer.near, header, frame)
        if not peer.must_hold:
            process = self._process_of(header.partition)
            self._forward(peer, header, frame, process, due_ms, len(frame), landing)
        elif len(peer.held) < HELD_FETCHES_MAX:
            peer.held.append(HeldFetch(bytearray(frame), due_ms, landing))
        else:
            raise Overloaded("replies to earlier fetches were not received yet")

    def _take_held(self, peer: Peer) -> None:
        while peer.held and not peer.must_hold:
            held = peer.held.popleft()
            frame = memoryview(held.frame)
            header = unpack_header(frame)
            try:
                process = self._process_of(header.partition)
                self._forward(peer, header, frame, process, held.due_ms, len(frame), held.landing)
            except RinglogError as error:
                self._refuse(peer, header, error)

    def _process_of(self, partition: int) -> int:
        process = self._processes.get(partition)
        if process is None:
            process = self._processes[partition] = self._find_process(partition)
        return process

    def _find_process(self, partition: int) -> int:
        found = self.image.partitions.get(partition)
        if found is None:
            raise StaleMetadata(f"there is no partition with id {partition}. Fetch metadata, then retry")
        if not found.replicas:
            return self._shard_process(found.shard)
        shard = found.shard_on(self.image.node_id)
        if shard is None:
            raise NotLeader(f"partition id {partition} has no replica here. Fetch metadata, then retry")
        return self._shard_process(shard)

    def _forward(
        self,
        peer: Peer,
        header: Header,
        frame: memoryview,
        process: int,
        due_ms: int,
        nbytes: int,
        landing: memoryview | None = None,
    ) -> None:
        """Copy the frame into the ring of the process that answers it, with its client's session and deadline.
        `nbytes`: how large it is with what lies in the client's memory."""
        end = self._ends.get(process)
        if end is None:
            raise self._unavailable(process)
        answered = header.api_key != _PRODUCE or header.flags & _ACKS_MASK != 0
        if answered:
            request = PendingRequest(process, header.api_key, nbytes, self.now_us, landing, header.partition)
            self.peers.admit(peer, header.correlation, request)
        _STAMP.pack_into(frame, _STAMP_AT, peer.session, due_ms)
        try:
            if process in self.overflow or not end.writer.write(frame):
                self._let_wait(process, frame)  # for room, behind what waits already
        except RinglogError:
            if answered:
                self.peers.settle(peer, header.correlation)
            raise
        self._stats.counts["bytes_in"] += nbytes

    def _let_wait(self, process: int, frame: memoryview) -> None:
        waiting = self._overflow_bytes.get(process, 0) + len(frame)
        if waiting > OVERFLOW_BYTES_MAX:
            raise Overloaded("the shard is behind with its requests")
        self._overflow_bytes[process] = waiting
        self.overflow.setdefault(process, deque()).append(bytes(frame))

    def _share_memory(self, peer: Peer, header: Header, request: ShareMemoryRequest) -> None:
        """From now on the client may name batches in its memory instead of sending them, and places for replies. Those
        that fetches under way have named stay theirs."""
        self.peers.share(peer, None)
        if self.peers.near_count >= NEAR_MEMORIES_MAX:
            raise LimitExceeded(f"{NEAR_MEMORIES_MAX} clients share their memory already. Send the batches")
        self.peers.share(peer, self._near(peer.routing_id, request))
        reply = encode_body(ShareMemoryReply(request.nbytes, request.writable))
        self._answer(peer, header.api_key, header.correlation, Flag.REPLY, reply)

    def _end_of(self, process: int) -> LinkEnd:
        end = self._ends.get(process)
        if end is None:
            raise self._unavailable(process)
        return end

    # -- from rings --------------------------------------------------------------------------------------------

    def take_frames(self, process: int, end: LinkEnd, messages: list[Message]) -> None:
        """Send on what a process has answered."""
        for message in messages:
            self._take_reply(process, message.body)
        end.reader.release()
        if self._releases:
            released = self._releases.pop(process, None)
            if released:
                end.send(node_frame(NodeApi.RELEASE, pack_u64(*released)), wakes=False)

    def _take_reply(self, process: int, frame: memoryview) -> None:
        _version, api_key, flags, partition, correlation, session = _ROUTE.unpack_from(frame)
        if api_key == _DELTA:
            delta = decode_delta(bytes(frame[HEADER_BYTES:]))
            self.image.apply(delta)
            self._processes.clear()
            self.has_image = self.has_image or not delta.more
            self._metadata.image_changed()
            return
        if session == 0:
            self._metadata.created(correlation, flags, frame[HEADER_BYTES:])
            return
        peer = self.peers.by_session.get(session)
        near_bytes = 0
        if flags & LENT:
            lent = unpack_lent(frame[HEADER_BYTES:])
            self._releases.setdefault(process, []).append(lent.token)
            asked = None if peer is None else peer.pending.get(correlation)
            if asked is None:
                return  # nobody waits for it: its client is gone
            region = self._regions[process]
            pieces: list[bytes | memoryview] = [
                lent.head,
                *(region[at : at + nbytes] for at, nbytes in lent.ranges),
            ]
            landing = asked.landing
            if landing is not None and len(lent.head) + lent.data_bytes <= len(landing):
                near_bytes = land(landing, pieces)
                message = landed_reply(
                    api_key, correlation=correlation, partition=partition, nbytes=near_bytes
                )
            else:
                message = _message(api_key, correlation, partition, flags & ~LENT, pieces)
            if not self._intact(process):
                return  # its owner died, and another may have written there: the request will be refused
        else:
            # As it came, without what is only said between processes of the node.
            message = b"".join((frame[:_STAMP_AT], _NO_STAMP, frame[_STAMP_AT + _STAMP.size :]))
        came_us = self.peers.settle(peer, correlation) if peer is not None else None
        if peer is None or came_us is None:
            return
        if peer.deaf:
            # It asked for all this at once, and reads nothing of it: more would only wait in memory.
            self._stats.counts["refused"] += 1
            error = Overloaded("replies to earlier requests were not received yet. Receive them, then retry")
            self._answer_error(peer, api_key, correlation, error)
            return
        self._send_to(peer, message)
        if near_bytes:
            self._stats.counts["bytes_out"] += near_bytes
            self._stats.counts["near_bytes_out"] += near_bytes
        if api_key == _PRODUCE:
            self._stats.observe("produce_us", self.now_us - came_us)
        elif api_key == _FETCH:
            self._stats.observe("fetch_us", self.now_us - came_us)

    def retry_overflow(self) -> bool:
        """Give rings what they had no room for; False while something still waits."""
        for process, waiting in list(self.overflow.items()):
            end = self._ends[process]
            while waiting and end.writer.write(waiting[0]):
                self._overflow_bytes[process] -= len(waiting.popleft())
            if not waiting:
                del self.overflow[process]
        return not self.overflow

    # -- deaths ------------------------------------------------------------------------------------------------

    def connect(self, process: int, end: LinkEnd, region: memoryview | None) -> None:
        """A process began, or began anew: everything that its last incarnation held is refused, retriably."""
        self._ends[process] = end
        if region is not None:
            self._regions[process] = region
        self._releases.pop(process, None)
        self.overflow.pop(process, None)
        self._overflow_bytes.pop(process, None)
        error = self._unavailable(process)
        for peer, correlation, request in self.peers.waiting_for(process):
            self.peers.settle(peer, correlation)
            self._answer_error(peer, request.api_key, correlation, error)
        if process == self._controller:
            self._metadata.forget()

    def refuse_misled(self) -> None:
        """Refuse what waits for a shard that stands still, where another node leads by now: the shard would say so
        itself. To be called while something waits, every `STANDSTILL_LOOK_MS` at least."""
        for process in self._standstill.look(self.now_us / 1000):
            for peer, correlation, request in self.peers.waiting_for(process):
                found = self.image.partitions.get(request.partition)
                if found is not None and found.leader_on(self.image.node_id) != self.image.node_id:
                    error = NotLeader(
                        f"another node leads {self.image.name_of(found.partition)} now. Fetch metadata"
                    )
                    self.peers.settle(peer, correlation)
                    self._answer_error(peer, request.api_key, correlation, error)

    def clients_died(self, sessions: list[int]) -> None:
        """Processes of clients have died: tell the shards, which may know them as members of groups."""
        self._tell_shards(node_frame(NodeApi.LEFT, pack_u64(*sessions)))

    def tell_gone(self) -> None:
        """Tell the shards whose connections have ended since they were told last: they keep what such a client read."""
        gone, self.peers.dropped = self.peers.dropped, []
        if gone:
            # Behind all that such a client asked for: a shard that met a request later would map its memory again.
            self._tell_shards(node_frame(NodeApi.GONE, pack_u64(*gone), partition=NO_PARTITION))

    def _tell_shards(self, frame: bytes) -> None:
        for process, end in self._ends.items():
            if process == self._controller:
                continue
            if process in self.overflow:
                self._overflow_bytes[process] += len(frame)
                self.overflow[process].append(frame)
            else:
                end.send(frame)

    def end_heartbeats(self) -> None:
        """The node stops: whoever only waits for news is told so now."""
        error = ShardUnavailable("the node is being stopped")
        for process in self._ends:
            for peer, correlation, request in self.peers.waiting_for(process):
                if request.api_key == Api.GROUP_HEARTBEAT:
                    self.peers.settle(peer, correlation)
                    self._answer_error(peer, request.api_key, correlation, error)

    def _unavailable(self, process: int) -> RinglogError:
        if process == self._controller:
            return ControllerUnavailable("the controller process is being restarted")
        return ShardUnavailable("the shard process of this partition is being restarted")

    # -- answers -----------------------------------------------------------------------------------------------

    def _answer(self, peer: Peer, api_key: int, correlation: int, flags: int, body: bytes) -> None:
        self._send_to(peer, _message(api_key, correlation, 0, flags, [body]))

    def _send_to(self, peer: Peer, message: bytes) -> None:
        if self._send(peer.routing_id, message):
            nbytes = len(message)
            peer.sent_bytes += nbytes
            self._stats.counts["bytes_out"] += nbytes
        else:
            self.peers.drop(peer)

    def _answer_error(self, peer: Peer, api_key: int, correlation: int, error: RinglogError) -> None:
        self._stats.counts["errors"] += 1
        body = encode_body(error_reply(error))
        self._answer(peer, api_key, correlation, Flag.REPLY | Flag.ERROR, body)

    def _refuse(self, peer: Peer, header: Header, error: RinglogError) -> None:
        if header.api_key != Api.PRODUCE or header.flags & Flag.ACKS_MASK != Acks.NONE:
            self._answer_error(peer, header.api_key, header.correlation, error)
        else:
            self._stats.counts["errors"] += 1

    def _refuse_frame(self, peer: Peer, frame: memoryview, error: RinglogError) -> None:
        """The header cannot be trusted: answer with what stands where api and correlation would."""
        if peer.deaf:
            return
        if peer.unreceived_bytes > BAD_FRAME_REPLY_BYTES_MAX:
            self._stats.counts["refused"] += 1
            return
        whole = len(frame) >= HEADER_BYTES
        api_key = frame[1] if whole else 0
        correlation = int.from_bytes(frame[8:16], "little") if whole else 0
        self._answer_error(peer, api_key, correlation, error)


def _message(
    api_key: int, correlation: int, partition: int, flags: int, pieces: Sequence[bytes | memoryview]
) -> bytes:
    """A whole frame, made of pieces with one copy."""
    body_bytes = sum(len(piece) for piece in pieces)
    header = pack_header(
        api_key, correlation=correlation, partition=partition, flags=flags, body_bytes=body_bytes
    )
    return b"".join((header, *pieces))
