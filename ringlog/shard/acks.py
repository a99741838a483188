"""Acknowledgements that wait for the disk: each batch is answered when its records have become durable. Pure.

They are bounded: who appends looks at `is_full` before it does, since a batch that is in the log must be answered for.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import NamedTuple

from ringlog.errors import RinglogError
from ringlog.limits import ACKS_PER_PARTITION_MAX
from ringlog.model import Durability
from ringlog.net.messages import ProduceReply
from ringlog.shard.asker import Asker


class WaitingAck(NamedTuple):
    """A batch that was received and not answered yet. Sorts by where it ends."""

    next_offset: int
    order: int
    base_offset: int
    append_time_ms: int
    repeated: bool
    received_us: int
    asker: Asker


class AckQueue:
    """The batches of one partition that wait, in the order of their offsets."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self._waiting: deque[WaitingAck] = deque()
        self._order = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Too many wait: nothing more is to be appended that would have to be answered from here."""
        return len(self._waiting) >= ACKS_PER_PARTITION_MAX

    def add(
        self,
        asker: Asker,
        *,
        base_offset: int,
        next_offset: int,
        append_time_ms: int,
        repeated: bool,
        received_us: int,
    ) -> None:
        """Answer this batch when all below `next_offset` is durable."""
        self._order += 1
        ack = WaitingAck(next_offset, self._order, base_offset, append_time_ms, repeated, received_us, asker)
        if self._waiting and self._waiting[-1].next_offset > next_offset:
            # A repeat of a batch that itself is still on its way to the disk.
            insort(self._waiting, ack)
        else:
            self._waiting.append(ack)

    def advance(self, offset: int, durability: Durability, log_start_offset: int) -> list[WaitingAck]:
        """All below `offset` has become durable: answer what waited for it, and return that."""
        answered: list[WaitingAck] = []
        waiting = self._waiting
        while waiting and waiting[0].next_offset <= offset:
            ack = waiting.popleft()
            reply = ProduceReply(
                ack.base_offset, ack.append_time_ms, log_start_offset, durability, int(ack.repeated)
            )
            ack.asker.reply(reply.pack())
            answered.append(ack)
        return answered

    def refuse_all(self, error: RinglogError) -> None:
        """Nothing that waits will ever be durable, as far as this process can tell."""
        while self._waiting:
            self._waiting.popleft().asker.refuse(error)

    def forget(self, outlet: object) -> None:
        """The network process that asked is dead: nobody is there to be answered."""
        self._waiting = deque(ack for ack in self._waiting if ack.asker.outlet is not outlet)
