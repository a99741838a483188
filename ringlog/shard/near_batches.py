"""Batches that lie in the memory of clients on this host (`net/near.py`): a shard copies each into memory of its own,
where it is checked, stamped and appended as those that came through a ring are.

A large batch is copied to where its log wants it (`log/write_queue.py`), and never again. Others go to the same place
every time, which therefore stays in the core's cache, and from there to their log's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ringlog.errors import RequestTimeout, RinglogError
from ringlog.net.near import CRC, named_batch
from ringlog.ring.drain import copy_batches
from ringlog.shard.asker import Outlet

MapMemory = Callable[[int, int, int], memoryview]
"""The memory of a process behind a descriptor, so many bytes of it; InvalidRequest when there is none."""

Place = Callable[[int], memoryview | None]
"""Where a copy of so many bytes should lie; None: anywhere."""


class _Mapped(NamedTuple):
    number: int
    view: memoryview


class NearBatches:
    """What one shard sees of its clients' memory. It is mapped when the first batch in it is named."""

    def __init__(self, map_memory: MapMemory, room: memoryview) -> None:
        """`room`: for a copy of the largest batch."""
        self._map = map_memory
        self._room = room
        self._mapped: dict[Outlet, dict[int, _Mapped]] = {}
        """By the network process that speaks for them, and the session of the client."""

    def __len__(self) -> int:
        return sum(map(len, self._mapped.values()))

    def take(
        self, outlet: Outlet, session: int, body: memoryview, place: Place
    ) -> tuple[memoryview, tuple[int, ...]]:
        """A copy of the batch that a request names, which lives until the next call, and what a drain says of it. It
        lies where `place` wants it. RequestTimeout when another batch lies there: its client has given up on this one;
        and when it cannot be read: a client that sends again sends the batch itself."""
        named = named_batch(body)
        number, process, descriptor, nbytes, _ = named.memory
        clients = self._mapped.setdefault(outlet, {})
        mapped = clients.get(session)
        if mapped is None or mapped.number != number:
            try:
                mapped = clients[session] = _Mapped(number, self._map(process, descriptor, nbytes))
            except RinglogError as error:
                # Out of descriptors, or its process is gone: nothing is wrong with the batch, which is sent next time.
                raise RequestTimeout(f"the batch cannot be read where it lies: {error}") from error
        copy = place(named.nbytes)
        if copy is None:
            copy = self._room[: named.nbytes]
        row = copy_batches(copy, mapped.view[named.position : named.position + named.nbytes])
        if bytes(copy[CRC]) != named.crc:
            raise RequestTimeout("the batch is not where the request says: its client has given up on it")
        return copy, row

    def left(self, outlet: Outlet, sessions: Iterable[int]) -> None:
        """The connections of clients have ended."""
        clients = self._mapped.get(outlet, {})
        for session in sessions:
            clients.pop(session, None)

    def forget(self, outlet: Outlet) -> None:
        """A network process died: its clients will come through another one."""
        self._mapped.pop(outlet, None)
