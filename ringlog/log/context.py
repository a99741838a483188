"""What the logs of one shard share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ringlog.disk.api import Disk
from ringlog.log.arena import Arena
from ringlog.log.disk_space import DiskSpace
from ringlog.log.events import Event
from ringlog.log.extent import Extent
from ringlog.log.index_cache import IndexCache
from ringlog.log.jobs import Dispatcher

if TYPE_CHECKING:
    from ringlog.log.partition import PartitionLog


class ShardContext(NamedTuple):
    """What the logs of one shard share."""

    disk: Disk
    arena: Arena
    dispatcher: Dispatcher
    events: list[Event]
    make_room: Callable[[], bool]
    keep_tail: Callable[[PartitionLog, Extent], None]
    mark_ready: Callable[[PartitionLog], None]
    """Have pump() called in the next cycle: something came in, or what it waited for is done."""
    space: DiskSpace
    indexes: IndexCache
    group_bytes: int
    """A queued write that has so many takes no further append."""
