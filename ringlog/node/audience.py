"""The processes of a node that keep an image of the metadata: who is told what, and from when on all shards serve it.

A change is answered when every living shard serves it, so that whoever creates a topic can write to it at once. A shard
that is being restarted is not waited for: it begins with the whole image.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from ringlog.controller.records import Delta, encode_delta
from ringlog.ring.board import Board, Links, ProcessState
from ringlog.ring.link import LinkEnd
from ringlog.shard.asker import Asker
from ringlog.shard.commands import NodeApi, node_frame

APPLY_PATIENCE_S = 5.0
"""How long a reply waits for shards to serve the change; then it goes out all the same."""


class _WaitingReply(msgspec.Struct):
    """A change that is made, and that not all shards serve yet."""

    version: int
    asker: Asker
    body: msgspec.Struct
    until_s: float


class Audience:
    """Everyone at the other ends of the controller's links."""

    def __init__(self, board: Board, links: Links) -> None:
        self._board = board
        self._links = links
        self._shards = [board.topology.shard(index) for index in range(board.topology.shards)]
        self._applied: dict[int, int] = {}
        """The version that each shard process serves."""
        self._waiting: list[_WaitingReply] = []

    @property
    def has_waiting(self) -> bool:
        """Somebody waits for the shards."""
        return bool(self._waiting)

    def welcome(self, whole: Callable[[], Sequence[Delta]]) -> None:
        """Tell processes that began, or began anew, what there is."""
        for change in self._links.refresh():
            if change.old is not None:
                change.old.close()
            self._applied.pop(change.peer, None)
            _send(change.new, whole())

    def tell(self, deltas: Sequence[Delta]) -> None:
        """Tell everyone."""
        for end in self._links.ends.values():
            _send(end, deltas)

    def applied(self, process: int, version: int) -> None:
        """A process serves a version."""
        self._applied[process] = version

    def served(self, at_most: int) -> int:
        """The version that all living shards serve; `at_most` when none lives."""
        versions = [self._applied.get(process, -1) for process in self._shards if self._lives(process)]
        return min(versions, default=at_most)

    def _lives(self, process: int) -> bool:
        return self._board.state(process) is ProcessState.READY

    @property
    def all_live(self) -> bool:
        """All shards are there."""
        return all(self._lives(process) for process in self._shards)

    def reply_when_served(self, version: int, asker: Asker, body: msgspec.Struct) -> None:
        """Answer when all living shards serve a version."""
        self._waiting.append(_WaitingReply(version, asker, body, time.monotonic() + APPLY_PATIENCE_S))

    def answer_served(self, at_most: int) -> None:
        """Answer those whose change is served by now, or who waited long enough."""
        if not self._waiting:
            return
        served, now_s = self.served(at_most), time.monotonic()
        still: list[_WaitingReply] = []
        for waiting in self._waiting:
            if waiting.version <= served or waiting.until_s <= now_s:
                waiting.asker.reply_struct(waiting.body)
            else:
                still.append(waiting)
        self._waiting = still


def _send(end: LinkEnd, deltas: Sequence[Delta]) -> None:
    for delta in deltas:
        end.send(node_frame(NodeApi.DELTA, encode_delta(delta)))
