"""What the process that speaks with other nodes does with frames: from shards to nodes, and from nodes to shards.

No socket here: `peer_agent.py` gives it messages and takes them. Each node calls every other one; its own fetches and
reports leave through its calls, and the answers come back the same way. What others ask comes through their calls.

A frame is never lost in silence. Where one cannot be delivered, the follower's shard is told that its conversation with
the leader's shard has failed, and begins it anew (`Fetcher.failed`); answers that come twice or late are its business.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ringlog.controller.image import MetadataImage
from ringlog.controller.records import decode_delta
from ringlog.errors import (
    InvalidRequest,
    LimitExceeded,
    NodeUnavailable,
    Overloaded,
    RinglogError,
    ShardUnavailable,
    StaleBroker,
)
from ringlog.limits import (
    FRAME_BYTES_MAX,
    HELLO_AGAIN_MS,
    REPLICA_LANDED_BYTES_MIN,
    REPLICA_OVERFLOW_BYTES_MAX,
    SHARDS_MAX,
)
from ringlog.net.framing import HEADER_BYTES, Flag, Header, unpack_header
from ringlog.net.messages import ErrorReply, decode_body
from ringlog.net.peer_calls import Call, Caller, Callers, CallState, Lane
from ringlog.net.peer_near import Landing, MapMemory, grant_of, places_of
from ringlog.net.peer_wire import decode_hello, error_frame, hello_frame, judge, me_of, passed_on
from ringlog.net.wire_errors import raised
from ringlog.ring.link import LinkEnd
from ringlog.ring.ring import Message
from ringlog.ring.stats import Stats
from ringlog.shard.commands import (
    LENT,
    REPLICA_APIS,
    NodeApi,
    node_frame,
    pack_u64,
    place,
    place_of,
    unpack_lent,
)

_REPLY, _NEAR = int(Flag.REPLY), int(Flag.NEAR)
_PEER_HELLO, _REPLICA_FETCH = int(NodeApi.PEER_HELLO), int(NodeApi.REPLICA_FETCH)
"""As plain numbers: a member of an enum costs as much as three calls at each use."""
_log = logging.getLogger(__name__)


class SendTo(Protocol):
    """Sends one message to a node, or to who called; False when that is not possible now."""

    def __call__(self, to: int, message: bytes | bytearray, /) -> bool: ...


class AnswerTo(Protocol):
    """Sends one message to who called; False when it is gone."""

    def __call__(self, routing_id: bytes, message: bytes | bytearray, /) -> bool: ...


class PeerService:
    """The work of the peer process between its sockets and its rings."""

    def __init__(
        self,
        stats: Stats,
        *,
        controller: int,
        shard_of: Callable[[int], int],
        send: SendTo,
        answer: AnswerTo,
        intact: Callable[[int], bool],
        host: str,
        share: Callable[[], Landing | None],
        map_memory: MapMemory,
    ) -> None:
        """`shard_of`: which shard a process is; `intact`: whether the one that we speak with is still the latest;
        `host`: where this process runs; `share`: new memory that a node on the same host may put answers into."""
        self.image = MetadataImage()
        self.has_image = False
        self.calls: dict[int, Call] = {}
        """To every other node of the cluster."""
        self.callers = Callers()
        self._me = me_of(self.image)
        self._stats = stats
        self._controller = controller
        self._shard_of = shard_of
        self._send = send
        self._answer = answer
        self._intact = intact
        self._host = host
        self._share = share
        self._map_memory = map_memory
        self._ends: dict[int, LinkEnd] = {}
        """By shard, as everything below."""
        self._regions: dict[int, memoryview] = {}
        self._releases: dict[int, list[int]] = {}
        self._overflow: dict[int, deque[bytes]] = {}
        self._overflow_bytes: dict[int, int] = {}
        self._served: dict[int, set[Lane]] = {}
        """The nodes, and their shards, that asked a shard of this node something."""
        self._now_ms = 0

    def at(self, now_us: int) -> None:
        """The time of this cycle: monotonic, in microseconds."""
        self._now_ms = now_us // 1000

    # -- from rings --------------------------------------------------------------------------------------------

    def take_frames(self, process: int, end: LinkEnd, messages: list[Message]) -> None:
        """Take what a shard or the controller has written."""
        for message in messages:
            if process == self._controller:
                self._take_delta(message.body)
            else:
                self._take_from_shard(process, message.body)
        end.reader.release()
        released = self._releases.pop(process, None)
        if released:
            end.send(node_frame(NodeApi.RELEASE, pack_u64(*released)), wakes=False)

    def _take_from_shard(self, process: int, frame: memoryview) -> None:
        header = unpack_header(frame)
        node, their_shard = place_of(header.received)
        if header.flags & _REPLY:
            self._answer_node(process, header, frame, node, their_shard)
        else:
            self._ask_node(self._shard_of(process), header, frame, node)

    def _ask_node(self, shard: int, header: Header, frame: memoryview, node: int) -> None:
        """What a shard asks goes to the other node. A fetch grants a place for an answer."""
        lane, call = (shard, header.correlation), self.calls.get(node)
        if call is not None and call.is_ready:
            call.lanes.add(lane)
            landing = call.landing if header.api_key == _REPLICA_FETCH else None
            position = landing.grant() if landing is not None else None
            flags, body = 0, bytes(frame[HEADER_BYTES:])
            if position is not None:
                flags, body = _NEAR, grant_of(position) + body
            message = passed_on(header, session=shard, flags=flags, body_bytes=len(body)) + body
            if self._send(node, message):
                self._count_out(len(message))
                return
            if landing is not None and position is not None:
                landing.revoke(position)
        what = NodeApi(header.api_key).name
        self._fail_lane(node, lane, NodeUnavailable(f"node {node} cannot be reached: {what} waits"))

    def _answer_node(
        self, process: int, header: Header, frame: memoryview, node: int, their_shard: int
    ) -> None:
        """A shard's answer goes to the node that asked: through the socket, or into the memory that it shares."""
        caller, flags = self.callers.by_node.get(node), header.flags & ~LENT
        pieces: list[bytes | memoryview] = [frame[HEADER_BYTES:]]
        if header.flags & LENT:
            lent = unpack_lent(frame[HEADER_BYTES:])
            self._releases.setdefault(process, []).append(lent.token)
            region = self._regions[self._shard_of(process)]
            pieces = [lent.head, *(region[at : at + nbytes] for at, nbytes in lent.ranges)]
        if caller is None:
            return  # it hung up, and begins anew when it calls again
        nbytes = sum(map(len, pieces))
        places = caller.places if nbytes >= REPLICA_LANDED_BYTES_MIN else None
        position = places.put(pieces, nbytes) if places is not None else None
        if places is not None and position is not None:
            flags |= _NEAR
            pieces = [places.landed(position, nbytes)]
        head = passed_on(header, session=their_shard, flags=flags, body_bytes=sum(map(len, pieces)))
        message = b"".join((head, *pieces))
        # If the owner of what was lent died, another may have written there; who asked is told when the link is new.
        is_sound = not header.flags & LENT or self._intact(process)
        if is_sound and self._send_answer(caller, header.correlation, their_shard, message):
            if position is not None:
                self._count_out(nbytes, near=True)
        elif places is not None and position is not None:
            places.put_back(position)

    def _send_answer(self, caller: Caller, lane: int, their_shard: int, message: bytes) -> bool:
        if len(message) > FRAME_BYTES_MAX:
            _log.error("an answer of %d bytes to node %d is larger than any frame", len(message), caller.node)
            error = LimitExceeded(
                f"the answer has {len(message)} bytes, and a frame {FRAME_BYTES_MAX} at most"
            )
            message = error_frame(NodeApi.REPLICA_FETCH, error, correlation=lane, session=their_shard)
        is_sent = self._answer(caller.routing_id, message)
        if is_sent:
            self._count_out(len(message))
        else:
            self._stats.counts["refused"] += 1
        return is_sent

    # -- metadata ----------------------------------------------------------------------------------------------

    def _take_delta(self, frame: memoryview) -> None:
        if frame[1] != NodeApi.DELTA:
            return
        delta = decode_delta(bytes(frame[HEADER_BYTES:]))
        self.image.apply(delta)
        if not delta.more:
            self.has_image = True
            self._follow_brokers()

    def _follow_brokers(self) -> None:
        """Call the nodes that there are, and listen to no life of a node that is over."""
        me, brokers = me_of(self.image), self.image.brokers
        is_anew, self._me = me != self._me, me
        wanted = {
            node: broker.peer_endpoint
            for node, broker in brokers.items()
            if me is not None and node != me.node_id and broker.peer_endpoint
        }
        for node in [node for node, call in self.calls.items() if wanted.get(node) != call.endpoint]:
            self._lost(self.calls.pop(node), "it is not there any more, or elsewhere")
        for node, endpoint in wanted.items():
            if node not in self.calls:
                self.calls[node] = Call(node, endpoint)
            elif is_anew:
                self._event(self.calls[node], "stranger", "this node was registered anew")
        for caller in list(self.callers.by_routing_id.values()):
            known = brokers.get(caller.node)
            if known is None or known.broker_epoch > caller.broker_epoch:
                self._hang_up(caller, StaleBroker(f"node {caller.node} is in another life by now. Say hello"))

    def _hang_up(self, caller: Caller, why: RinglogError) -> None:
        self.callers.left(caller.routing_id)
        self._forget_served(caller.node)
        self._answer(caller.routing_id, error_frame(NodeApi.PEER_HELLO, why))

    # -- calls of this node --------------------------------------------------------------------------------------

    def connected(self, node: int) -> None:
        """The connection of a call is there."""
        call = self.calls.get(node)
        if call is not None:
            self._event(call, "up", "the connection was lost")

    def disconnected(self, node: int) -> None:
        """It is gone."""
        call = self.calls.get(node)
        if call is not None:
            self._event(call, "down", "the connection was lost")

    def take_answer(self, node: int, frame: memoryview) -> None:
        """A message came through a call of this node."""
        call = self.calls.get(node)
        if call is None:
            return
        try:
            header = unpack_header(frame)
            if header.api_key == _PEER_HELLO:
                self._answered_hello(call, header, frame[HEADER_BYTES:])
            elif header.api_key != _REPLICA_FETCH or not header.flags & _REPLY:
                raise InvalidRequest(f"node {node} sent api {header.api_key} as an answer")
            elif call.is_ready:
                self._count_in(len(frame))
                self._deliver_answer(call, header, frame)
        except RinglogError as error:
            self._refused(f"node {node}", error)

    def _deliver_answer(self, call: Call, header: Header, frame: memoryview) -> None:
        body, landing = frame[HEADER_BYTES:], call.landing
        if not header.flags & _NEAR:
            self._give_answer(call, header, body)
        elif landing is None:
            raise InvalidRequest(f"node {call.node} put an answer where it was given no place")
        else:
            position, body = landing.take(body)
            self._count_in(len(body), near=True)
            self._give_answer(call, header, body)
            landing.freed(position)

    def _give_answer(self, call: Call, header: Header, body: memoryview) -> None:
        shard, lane = header.received, header.correlation
        if shard not in self._ends:
            return  # its process is being restarted, and will ask anew
        if not self._put(shard, header, body, place(call.node)):
            self._fail_lane(
                call.node, (shard, lane), Overloaded("the shard is behind with what it asked for")
            )

    def _answered_hello(self, call: Call, header: Header, body: memoryview) -> None:
        try:
            if header.flags & Flag.ERROR:
                raise raised(decode_body(body, ErrorReply))
            if self._me is None:
                return
            hello = decode_hello(body)
            judge(hello, self._me, self.image)
            if hello.node_id != call.node:
                raise InvalidRequest(f"node {hello.node_id} answers at {call.endpoint} for node {call.node}")
            if call.landing is not None:
                call.landing.is_taken = hello.shares == call.landing.offer
        except RinglogError as why:
            self._event(call, "stranger", str(why))
            if call.told != why.code:  # it is tried again and again: said once is enough
                call.told = why.code
                level = logging.INFO if why.retriable else logging.ERROR
                _log.log(level, "no call to node %d at %s yet: %s", call.node, call.endpoint, why)
            return
        call.told = ""
        self._event(call, "welcome", "")

    def _event(self, call: Call, event: str, why: str) -> None:
        if call.step(event):
            self._lost(call, why)

    def _lost(self, call: Call, why: str) -> None:
        """What was asked through a call is not answered any more."""
        lanes, call.lanes, call.landing = call.lanes, set(), None
        for lane in lanes:
            self._fail_lane(call.node, lane, NodeUnavailable(f"node {call.node}: {why}"))

    def _fail_lane(self, node: int, lane: Lane, why: RinglogError) -> None:
        """A shard of this node is told that its conversation with a shard of another one begins anew."""
        shard, their_shard = lane
        self._stats.counts["errors"] += 1
        if shard in self._ends:
            frame = memoryview(error_frame(NodeApi.REPLICA_FETCH, why, correlation=their_shard))
            self._put(shard, unpack_header(frame), frame[HEADER_BYTES:], place(node), must=True)

    # -- calls of other nodes --------------------------------------------------------------------------------------

    def take_call(self, routing_id: bytes, frame: memoryview) -> None:
        """A message of a node that called."""
        self._stats.counts["requests"] += 1
        try:
            header = unpack_header(frame)
            if header.flags & ~_NEAR:
                raise InvalidRequest("who calls asks, and answers nothing")
            if header.api_key == _PEER_HELLO:
                self._greeted(routing_id, frame[HEADER_BYTES:])
                return
            caller = self.callers.by_routing_id.get(routing_id)
            if caller is None:
                raise StaleBroker("this connection is not known as that of a node. Say hello")
            if header.api_key not in REPLICA_APIS or header.received >= SHARDS_MAX:
                raise InvalidRequest(f"api {header.api_key} of shard {header.received} is none between nodes")
            self._count_in(len(frame))
            body = frame[HEADER_BYTES:]
            if header.flags & _NEAR:
                if caller.places is None:
                    raise InvalidRequest("this connection has shared no memory to write in")
                body = caller.places.granted(body)
        except RinglogError as error:
            self._refused("a connection", error)
            if self.callers.is_news(routing_id):
                self._answer(routing_id, error_frame(NodeApi.PEER_HELLO, error))
            return
        self._ask_shard(caller, header, body)

    def _greeted(self, routing_id: bytes, body: memoryview) -> None:
        if self._me is None:
            raise StaleBroker("this node is not registered yet. Retry")
        hello = decode_hello(body)
        try:
            judge(hello, self._me, self.image)
        except RinglogError as error:
            # Each hello is answered: the caller says it again until it is let in, one at a time.
            self._stats.counts["refused"] += 1
            self._answer(routing_id, error_frame(NodeApi.PEER_HELLO, error))
            return
        self._forget_served(hello.node_id)
        places = places_of(hello.shares, self._host, self._map_memory)
        self.callers.let_in(Caller(routing_id, hello.node_id, hello.broker_epoch, places))
        shares = hello.shares if places is not None else None
        self._answer(routing_id, hello_frame(self._me, hello.node_id, Flag.REPLY, shares=shares))

    def left(self, routing_id: bytes) -> None:
        """A connection of who called is gone."""
        caller = self.callers.left(routing_id)
        if caller is not None:
            self._forget_served(caller.node)

    def _ask_shard(self, caller: Caller, header: Header, body: memoryview) -> None:
        shard, their_shard = header.correlation, header.received
        if shard in self._ends:
            self._served.setdefault(shard, set()).add((caller.node, their_shard))
            if self._put(shard, header, body, place(caller.node, their_shard)):
                return
            why: RinglogError = Overloaded("the shard is behind with its requests")
        else:
            why = ShardUnavailable(f"shard {shard} is not there, or being restarted")
        self._refuse_lane(caller.node, shard, their_shard, why)

    def _refuse_lane(self, node: int, shard: int, their_shard: int, why: RinglogError) -> None:
        """A shard of another node is told that its conversation with one of ours begins anew."""
        self._stats.counts["errors"] += 1
        caller = self.callers.by_node.get(node)
        if caller is not None:
            frame = error_frame(NodeApi.REPLICA_FETCH, why, correlation=shard, session=their_shard)
            self._answer(caller.routing_id, frame)

    def _forget_served(self, node: int) -> None:
        for lanes in self._served.values():
            lanes.difference_update([lane for lane in lanes if lane[0] == node])

    # -- into rings ------------------------------------------------------------------------------------------------

    def _put(self, shard: int, header: Header, body: memoryview, session: int, *, must: bool = False) -> bool:
        """Into a shard's ring, or behind what waits for room in it; False when too much does. What `must` be told is
        small, and there is one such frame for each that the shard has sent."""
        head = passed_on(header, session=session, flags=header.flags & ~_NEAR, body_bytes=len(body))
        nbytes = len(head) + len(body)
        if not self._overflow.get(shard):
            writer = self._ends[shard].writer
            room = writer.claim(nbytes)
            if room is not None:
                room[:HEADER_BYTES] = head
                room[HEADER_BYTES:] = body
                writer.commit()
                return True
        waiting = self._overflow_bytes.get(shard, 0) + nbytes
        if waiting > REPLICA_OVERFLOW_BYTES_MAX and not must:
            self._stats.counts["refused"] += 1
            return False
        self._overflow_bytes[shard] = waiting
        self._overflow.setdefault(shard, deque()).append(head + body)
        return True

    def retry_overflow(self) -> bool:
        """Give rings what they had no room for; False while something still waits."""
        all_out = True
        for shard, waiting in self._overflow.items():
            while waiting:
                if not self._ends[shard].writer.write(waiting[0]):
                    all_out = False
                    break
                self._overflow_bytes[shard] -= len(waiting.popleft())
        return all_out

    # -- time and deaths -------------------------------------------------------------------------------------------

    def greet(self) -> int | None:
        """Say hello where one is due; when the next one is, None if none will be."""
        due = []
        for call in self.calls.values():
            if call.state is not CallState.GREETING or self._me is None:
                continue
            if call.greet_ms <= self._now_ms:
                call.greet_ms = self._now_ms + HELLO_AGAIN_MS
                if call.landing is None:
                    call.landing = self._share()
                shares = call.landing.offer if call.landing is not None else None
                self._send(call.node, hello_frame(self._me, call.node, shares=shares))
            due.append(call.greet_ms)
        return min(due, default=None)

    def connect(self, process: int, end: LinkEnd, region: memoryview | None) -> None:
        """A process began, or began anew: whoever waits for its last incarnation is told."""
        if process == self._controller:
            return
        shard = self._shard_of(process)
        self._ends[shard] = end
        if region is not None:
            self._regions[shard] = region
        self._releases.pop(process, None)
        self._overflow.pop(shard, None)
        self._overflow_bytes.pop(shard, None)
        for node, their_shard in self._served.pop(shard, set()):
            self._refuse_lane(node, shard, their_shard, ShardUnavailable(f"shard {shard} was restarted"))

    def _refused(self, who: str, error: RinglogError) -> None:
        self._stats.counts["refused"] += 1
        _log.debug("%s is refused: %s", who, error)

    def _count_in(self, nbytes: int, *, near: bool = False) -> None:
        """`near`: these came through memory that is shared, behind a message that was counted already."""
        self._stats.counts["bytes_in"] += nbytes
        if near:
            self._stats.counts["near_bytes_in"] += nbytes

    def _count_out(self, nbytes: int, *, near: bool = False) -> None:
        self._stats.counts["bytes_out"] += nbytes
        if near:
            self._stats.counts["near_bytes_out"] += nbytes
