"""The recovery point between two saves of the state: moved by one small durable write, without a rename.

    partition.point    0                 64 KiB             128 KiB
                       ├──────────────────┼──────────────────┤
                       │ slot 0           │ slot 1           │   each an envelope, then zeros

The slots are written in turn, so that a torn write leaves the other one whole. A point belongs to one save of the
state, by its generation: a newer state makes it void. Losing it costs a longer scan, nothing else.
"""

from __future__ import annotations

import msgspec

from ringlog.disk.api import Disk
from ringlog.errors import CorruptFile
from ringlog.limits import KIB
from ringlog.log import envelope
from ringlog.log.epochs import EpochStart
from ringlog.log.jobs import Job, must, write_fully
from ringlog.log.names import POINT_NAME
from ringlog.log.state import ActivePoint, PartitionState

POINT_MAGIC = b"RLM1"
SLOT_BYTES = 64 * KIB


class MovedPoint(msgspec.Struct, array_like=True, frozen=True):
    """What a partition's state would say if it were saved now."""

    generation: int
    """Of the state that it belongs to."""
    number: int
    """Counts the points of one generation; the highest that can be read is in force."""
    active: ActivePoint
    epochs: list[EpochStart]
    producers: bytes | None
    """A snapshot of producers, None when there are none."""

    def encode(self) -> bytes:
        return envelope.seal(POINT_MAGIC, self)


def save_point(disk: Disk, directory: str, point: MovedPoint) -> Job[bool]:
    """Write a point into its slot, flushed. False, and nothing is written, when it is too large for one."""
    data = point.encode()
    if len(data) > SLOT_BYTES:
        return False
    path = f"{directory}/{POINT_NAME}"
    is_new = not disk.exists(path)
    file = disk.open(path, write=True, create=True)
    try:
        yield from write_fully(disk, file, data, point.number % 2 * SLOT_BYTES, durable=True)
    finally:
        disk.close(file)
    if is_new:
        must((yield disk.flush_dir(directory)), f"flush directory of {path}")
    return True


def newest_point(data: bytes, state: PartitionState) -> MovedPoint | None:
    """The point in force among the slots of a file, or None when none of them belongs to the state.

    What cannot be read is passed over: a slot under a torn write, an older generation, or zeros.
    """
    found = [
        slot
        for slot in read_slots(data)
        if isinstance(slot, MovedPoint)
        and slot.generation == state.generation
        and slot.active.base_offset == state.active.base_offset
    ]
    return max(found, key=lambda point: point.number, default=None)


def last_generation(data: bytes) -> int:
    """The highest generation that a readable slot belongs to, 0 when there is none.

    A partition that lost its state must count on from here: should it come to a generation that a slot of its old
    life has, that slot would be in force again.
    """
    return max((slot.generation for slot in read_slots(data) if isinstance(slot, MovedPoint)), default=0)


def read_slots(data: bytes) -> list[MovedPoint | CorruptFile]:
    """What each slot that was ever written holds, or why it cannot be read."""
    slots: list[MovedPoint | CorruptFile] = []
    for start in (0, SLOT_BYTES):
        slot = data[start : start + SLOT_BYTES]
        if not slot.strip(b"\0"):
            continue
        try:
            slots.append(envelope.unseal_prefix(POINT_MAGIC, slot, MovedPoint))
        except CorruptFile as error:
            slots.append(CorruptFile(error.field, start + error.position, error.reason))
    return slots


def with_point(state: PartitionState, point: MovedPoint) -> PartitionState:
    """The state as the point moves it. Producers are then in the point, not in a snapshot."""
    return msgspec.structs.replace(state, active=point.active, epochs=point.epochs, has_producers=False)
