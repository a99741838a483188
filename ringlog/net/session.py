"""A client's side of one connection: correlation, deadlines, credit, and what fails when it is lost. Pure.

Time is an argument. Bytes come from `start` and go into `match`; sockets belong to `ringlog.net.dealer`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringlog import limits
from ringlog.errors import RinglogError, check
from ringlog.net.framing import HEADER_BYTES, Flag, Header, pack_header, unpack_header
from ringlog.net.near import LANDING, PLACE, Place, landed, place_of

DEADLINE_MS_MAX = 2**32 - 1
_NEAR = int(Flag.NEAR)
ANY_NODE = -1
"""In place of a node's id: any will do."""


def _ignore_reply(header: Header, body: memoryview) -> None:
    """For requests whose answer nobody waits for."""


def _ignore_error(error: RinglogError) -> None:
    """For requests whose failure changes nothing."""


@dataclass(slots=True, eq=False)
class Request:
    """One request, and whom to tell. Exactly one of `on_reply` and `on_error` is called, once."""

    api: int
    body: Any
    """Bytes-like, or a list of such. With `headroom`, one writable buffer with 32 bytes to spare in front."""
    on_reply: Callable[[Header, memoryview], None] = _ignore_reply
    on_error: Callable[[RinglogError], None] = _ignore_error
    partition: int = 0
    flags: int = 0
    timeout_s: float = 30.0
    headroom: bool = False
    waits_s: float = 0.0
    """How long the node may hold it back before it answers, as a long poll: it is not silent meanwhile."""
    node: int = ANY_NODE
    """The node that must get it; ANY_NODE: the one that leads the partition, or any when it is about none."""
    to_leader: bool = True
    """It is for the node that leads the partition, and worthless when another one does."""
    deadline_s: float = 0.0
    """Set when it is handed to a connection."""
    near_at: int = -1
    """Where in the memory that a client shares its body begins, behind the headroom; -1: it lies elsewhere."""
    landing_bytes: int = 0
    """The reply may be put into memory that the client shares, where there is so much room; 0: it may not."""
    landing: Place | None = None
    """Where. Set when it is sent."""
    correlation: int = 0
    frame_bytes: int = 0
    """Set when it is sent."""

    def body_bytes(self) -> int:
        if isinstance(self.body, list):
            return sum(len(part) for part in self.body)
        return len(self.body) - (HEADER_BYTES if self.headroom else 0)


class Session:
    """Requests that were sent on one connection and are not answered yet."""

    def __init__(
        self,
        requests_max: int = limits.CLIENT_REQUESTS_MAX,
        bytes_max: int = limits.CLIENT_BYTES_IN_FLIGHT_MAX,
    ) -> None:
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self.pending: dict[int, Request] = {}
        """By correlation, in the order they were sent."""
        self._landings: dict[int, memoryview] = {}
        """Places that the node may write to, by the correlation of the fetch that named them: until that is answered,
        also when nobody waits for the answer any more."""
        self._deadlines: list[tuple[float, int]] = []
        self._correlation = 0
        self.bytes_in_flight = 0
        self.shares_memory = False
        """The node reads what lies in this client's memory there (`near.py`)."""
        self.received = 0
        """Bytes of reply frames that came on this connection: the credit that every request tells."""

    def __len__(self) -> int:
        return len(self.pending)

    def has_room(self, request: Request) -> bool:
        """Whether the node would take one more. A single one always fits: the node judges its size."""
        if not self.pending:
            return True
        frame_bytes = HEADER_BYTES + request.body_bytes()
        return (
            len(self.pending) < self._requests_max and self.bytes_in_flight + frame_bytes <= self._bytes_max
        )

    def start(self, request: Request, now_s: float) -> Any:
        """The frame of a request, one buffer. `sent` must follow when the socket took it; else it never was."""
        self._correlation += 1
        body_bytes = request.body_bytes()
        is_near = self.shares_memory and request.near_at >= 0
        landing = request.landing
        if landing is not None:
            body_bytes += LANDING.size
        header = pack_header(
            request.api,
            correlation=self._correlation,
            body_bytes=PLACE.size if is_near else body_bytes,
            partition=request.partition,
            flags=request.flags | Flag.NEAR if is_near or landing is not None else request.flags,
            received=self.received,
            deadline_ms=min(DEADLINE_MS_MAX, max(1, int((request.deadline_s - now_s) * 1000))),
        )
        request.correlation = self._correlation
        request.frame_bytes = HEADER_BYTES + body_bytes
        if is_near:
            return header + place_of(request.body, request.near_at)
        if landing is not None:
            return header + LANDING.pack(landing.position, len(landing.memory)) + request.body
        if request.headroom:
            memoryview(request.body)[:HEADER_BYTES] = header
            return request.body
        if isinstance(request.body, list):
            return b"".join([header, *request.body])
        return header + request.body

    def sent(self, request: Request) -> None:
        """The socket took the frame that `start` made."""
        check(request.correlation not in self.pending, "a correlation is given once")
        self.pending[request.correlation] = request
        self.bytes_in_flight += request.frame_bytes
        if request.landing is not None:
            self._landings[request.correlation] = request.landing.memory
            request.landing = None
        heapq.heappush(self._deadlines, (request.deadline_s, request.correlation))

    def match(self, frame: memoryview) -> tuple[Request, Header, memoryview] | None:
        """The request that a frame answers, and the frame's two parts; None for a reply that came too late.
        CorruptFrame as by framing."""
        header = unpack_header(frame)
        self.received += HEADER_BYTES + header.body_bytes
        body = frame[HEADER_BYTES:]
        landing = self._landings.pop(header.correlation, None) if self._landings else None
        if header.flags & _NEAR:
            body = landed(landing, body)
        request = self._take(header.correlation)
        return None if request is None else (request, header, body)

    def expired(self, now_s: float) -> list[Request]:
        """Take out the requests whose deadline has passed, the oldest first."""
        late: list[Request] = []
        while self._deadlines and self._deadlines[0][0] <= now_s:
            request = self._take(heapq.heappop(self._deadlines)[1])
            if request is not None:
                late.append(request)
        return late

    def answer_due_s(self) -> float | None:
        """When the oldest request could have been answered by a node that has nothing else to do."""
        for request in self.pending.values():
            return request.deadline_s - request.timeout_s + request.waits_s
        return None

    def recall(self, unwanted: Callable[[Request], bool]) -> list[Request]:
        """Take out requests whose answers nobody needs any more, in the order they were sent."""
        numbers = [number for number, request in self.pending.items() if unwanted(request)]
        return [request for number in numbers if (request := self._take(number)) is not None]

    def next_deadline_s(self) -> float | None:
        """When `expired` has something to say next."""
        while self._deadlines and self._deadlines[0][1] not in self.pending:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def lost(self) -> list[Request]:
        """The connection is gone: take out all requests, in the order they were sent. The credit begins anew.

        Correlations go on, so that a reply of the old connection can never be taken for one of the new.
        """
        gone = list(self.pending.values())
        self.pending.clear()
        self._landings.clear()
        self._deadlines.clear()
        self.bytes_in_flight = 0
        self.received = 0
        self.shares_memory = False
        return gone

    def _take(self, correlation: int) -> Request | None:
        request = self.pending.pop(correlation, None)
        if request is not None:
            self.bytes_in_flight -= request.frame_bytes
        return request
