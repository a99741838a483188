"""What goes in and out of the partitions that this node leads, in bytes a second, for the controller."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ringlog.controller.image import MetadataImage
from ringlog.limits import LOAD_PARTITIONS_MAX, LOAD_REPORT_MS


class LoadMeter:
    """Compares the counts of the stats page with those of the last report."""

    def __init__(self, served: Callable[[], NDArray[np.void]]) -> None:
        """`served`: the rows of all partitions that this node serves."""
        self._served = served
        self._bytes: dict[int, int] = {}
        self._at_ms: float | None = None

    def report(self, image: MetadataImage, node_id: int, now_ms: float) -> list[tuple[int, int]]:
        """Partitions with bytes a second, the busiest first; empty while none is due. Those that had nothing to do are
        left out: who hears nothing of them for long takes them for idle."""
        if self._at_ms is not None and now_ms < self._at_ms + LOAD_REPORT_MS:
            return []
        before, since_ms, self._at_ms = self._bytes, self._at_ms, now_ms
        rows = self._served()
        total = (rows["bytes_in"] + rows["bytes_out"]).tolist()
        self._bytes = dict(zip(rows["partition"].tolist(), total, strict=True))
        if since_ms is None:
            return []
        loads = []
        for partition, nbytes in self._bytes.items():
            record = image.partitions.get(partition)
            # A count that is lower than it was is that of a shard that began anew, or of a replica that was made anew.
            moved = nbytes - before.get(partition, nbytes)
            if moved > 0 and record is not None and record.leader == node_id:
                loads.append((partition, int(moved * 1000 / (now_ms - since_ms))))
        return sorted(loads, key=lambda load: -load[1])[:LOAD_PARTITIONS_MAX]
