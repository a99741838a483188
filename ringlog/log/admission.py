"""Whether batches may be appended to a log: their size, the room there is, and what their producer sent before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringlog.errors import BatchTooLarge, InvalidRequest, PartitionBusy
from ringlog.limits import PENDING_BYTES_PER_PARTITION_MAX
from ringlog.log.batch import BatchInfo
from ringlog.log.producers import Repeat

if TYPE_CHECKING:
    from ringlog.log.partition import PartitionLog


def judge_append(log: PartitionLog, batches: Sequence[BatchInfo], nbytes: int) -> Repeat | None:
    """Raise unless the batches of a producer may be appended; a Repeat when they all were before."""
    for batch in batches:
        if batch.nbytes > log.settings.batch_bytes_max:
            raise BatchTooLarge(
                f"{log.name}: a batch of {batch.nbytes} bytes; at most {log.settings.batch_bytes_max} are taken"
            )
        if batch.record_count < 1:
            raise InvalidRequest(f"{log.name}: a batch without records cannot be appended")
    if nbytes > (most := log.settings.append_bytes_max):
        raise BatchTooLarge(f"{log.name}: {nbytes} bytes in one append; at most {most} are taken")
    require_room(log, nbytes)
    if len(batches) == 1:
        return log.producers.judge(batches[0]) if batches[0].producer_id >= 0 else None
    if any(batch.producer_id >= 0 for batch in batches):
        raise InvalidRequest(f"{log.name}: an idempotent producer sends one batch at a time")
    return None


def require_room(log: PartitionLog, nbytes: int) -> None:
    """Raise PartitionBusy while too much waits for the disk."""
    if log.pending_bytes + nbytes > PENDING_BYTES_PER_PARTITION_MAX:
        raise PartitionBusy(f"{log.name}: {log.pending_bytes} bytes wait for the disk. Retry after a pause")
