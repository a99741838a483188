"""Who asked: where a reply goes, and how it is framed."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from ringlog.errors import RinglogError
from ringlog.net.framing import Flag
from ringlog.net.messages import encode_body
from ringlog.net.wire_errors import error_reply
from ringlog.ring.frame import frame_header

NOT_BEGUN = "the request was not begun in the time that its client waits, and is not done. Retry"
"""Said of a request whose deadline had passed when its turn came."""


_REPLY = int(Flag.REPLY)


class Outlet(Protocol):
    """Takes frames for one network process."""

    def send(self, frame: bytes) -> None: ...


class Asker(NamedTuple):
    """A request's way back."""

    outlet: Outlet
    session: int
    correlation: int
    api_key: int
    partition: int

    def reply(self, body: bytes, flags: int = _REPLY) -> None:
        """Answer."""
        header = frame_header(
            api_key=self.api_key,
            partition=self.partition,
            correlation=self.correlation,
            session=self.session,
            flags=flags,
            body_bytes=len(body),
        )
        self.outlet.send(header + body)

    def reply_struct(self, body: msgspec.Struct) -> None:
        """Answer with a control body."""
        self.reply(encode_body(body))

    def refuse(self, error: RinglogError) -> None:
        """Answer with an error."""
        self.reply(encode_body(error_reply(error)), Flag.REPLY | Flag.ERROR)
