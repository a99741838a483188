"""What a follower does with its log: appends batches as its leader stamped them, with the gaps that compaction left."""

from __future__ import annotations

import numpy as np

from ringlog.errors import check
from ringlog.log.admission import require_room
from ringlog.log.batch import batch_infos
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition


def append_as_they_are(
    store: LogStore, name: TopicPartition, data: memoryview, table: np.ndarray, *, now_ms: int
) -> None:
    """Append whole, checked batches without a change to any byte. `table`: their BATCH_TABLE, which fills the data.

    The caller has seen that they continue the log: offsets grow, epochs never go back. They are `received` on return:
    all of them, or none when PartitionBusy, PartitionFenced or DiskFull is raised."""
    log = store.admit(name, data.nbytes)
    log.must_be_open()
    check(len(table) > 0 and int(table["length"].sum()) == data.nbytes, "the batches fill the data")
    check(int(table["base_offset"][0]) >= log.next_offset, "batches stand behind the end of the log")
    check(int(table["leader_epoch"][0]) >= log.epochs.latest, "a leader epoch never goes back")
    require_room(log, data.nbytes)
    last_offset = int(table["last_offset"][-1])
    if log.must_roll(data.nbytes, last_offset + 1 - log.next_offset, now_ms):
        log.roll(now_ms)
    spans = table.copy()
    # A compacted batch has fewer records than offsets: positions and sequences go by its offsets.
    spans["record_count"] = table["last_offset"] - table["base_offset"] + 1
    extent = log.copy_in(data, now_ms)
    offsets, epochs = table["base_offset"].tolist(), table["leader_epoch"].tolist()
    for batch, base_offset, epoch in zip(batch_infos(spans), offsets, epochs, strict=True):
        log.note([batch], extent, base_offset, now_ms, epoch, stamped=False)
    store.note_appended(log, data.nbytes, now_ms)
