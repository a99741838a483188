"""The client's half of an incremental fetch: what the shard knows already is not told again."""

from __future__ import annotations

from ringlog.client.assigned import Assigned
from ringlog.limits import FETCH_BYTES_MAX
from ringlog.net.messages import FetchedPartition, FetchPartition, FetchRequest

_UNSURE = -1
"""In place of an offset: the shard has the partition in the session, and should be told where to read."""

Asked = dict[int, tuple[Assigned, int, int]]
"""By node-wide id: the partition, its generation and the offset that was asked for."""


class FetchSession:
    """One session, with at most one request under way."""

    __slots__ = ("_known", "asked", "brief", "brought_bytes", "number")

    def __init__(self) -> None:
        self.number = 0
        """0: the shard has no session for us, and is told everything."""
        self.asked: Asked | None = None
        """The request under way. An answer to any other comes too late."""
        self.brief = False
        """The request under way waits only briefly at the node."""
        self.brought_bytes = FETCH_BYTES_MAX
        """By the last reply; much before the first one."""
        self._known: dict[int, int] = {}

    def request(
        self,
        asked: Asked,
        *,
        wait_ms: int,
        bytes_min: int,
        bytes_max: int,
        partition_bytes_max: int,
        follower: bool = False,
    ) -> FetchRequest:
        """The request for exactly these partitions."""
        known, self._known = self._known, {}
        told: list[FetchPartition] = []
        for partition, (_, _, offset) in asked.items():
            self._known[partition] = offset
            if known.get(partition) != offset:
                told.append(FetchPartition(partition, offset, partition_bytes_max))
        forget = [partition for partition in known if partition not in asked]
        self.asked = asked
        return FetchRequest(self.number, wait_ms, bytes_min, bytes_max, told, forget, follower)

    def answered(self, number: int, rows: list[FetchedPartition]) -> None:
        """A reply came. Where it brought something, the shard's offset may have moved or not: it is told anew."""
        self.asked = None
        self.number = number
        if number == 0:
            self._known = {}
        brought_bytes = 0
        for row in rows:
            nbytes = row.data.nbytes
            brought_bytes += nbytes
            if (row.error or nbytes) and row.partition in self._known:
                self._known[row.partition] = _UNSURE
        self.brought_bytes = brought_bytes

    def lost(self) -> None:
        """No answer, or one that tells of no session: begin a new one."""
        self.asked = None
        self.number = 0
        self._known = {}
