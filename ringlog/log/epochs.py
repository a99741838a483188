"""Leader epochs of a partition: which epoch began at which offset. Pure.

Replicas find where they diverge by this history, never by comparing offsets alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from ringlog.errors import check


class EpochStart(NamedTuple):
    """From `offset` on, batches were appended under `epoch`."""

    epoch: int
    offset: int


class EpochHistory:
    """Epochs and offsets that both increase strictly.

    >>> history = EpochHistory([EpochStart(1, 0), EpochStart(3, 50)])
    >>> history.end_of(1, log_end=80), history.end_of(2, log_end=80), history.end_of(3, log_end=80)
    (EpochStart(epoch=1, offset=50), EpochStart(epoch=1, offset=50), EpochStart(epoch=3, offset=80))
    """

    def __init__(self, starts: list[EpochStart] | None = None) -> None:
        self._starts: list[EpochStart] = []
        for start in starts or []:
            self.note(start.epoch, start.offset)

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    @property
    def latest(self) -> int:
        """The epoch of the last batch, −1 for an empty log."""
        return self._starts[-1].epoch if self._starts else -1

    def note(self, epoch: int, offset: int) -> None:
        """A batch of this epoch stands at this offset; only the first of an epoch leaves a mark."""
        if epoch < 0 or epoch == self.latest:
            return
        check(epoch > self.latest, "a leader epoch never goes back")
        if self._starts and offset == self._starts[-1].offset:
            self._starts.pop()  # nothing is left of it: the log starts here now
        check(not self._starts or offset > self._starts[-1].offset, "a new epoch begins at a higher offset")
        self._starts.append(EpochStart(epoch, offset))

    def end_of(self, epoch: int, log_end: int) -> EpochStart | None:
        """The largest epoch not above the asked one, and the offset where it ends. None below all history."""
        after = bisect_right(self._starts, epoch, key=lambda start: start.epoch)
        if after == 0:
            return None
        end = self._starts[after].offset if after < len(self._starts) else log_end
        return EpochStart(self._starts[after - 1].epoch, end)

    def latest_below(self, offset: int) -> int:
        """The epoch of the last batch before an offset, −1 if there is none."""
        after = bisect_left(self._starts, offset, key=lambda start: start.offset)
        return self._starts[after - 1].epoch if after else -1

    def cut_end(self, offset: int) -> None:
        """The log now ends at `offset`."""
        del self._starts[bisect_left(self._starts, offset, key=lambda start: start.offset) :]

    def cut_start(self, offset: int) -> None:
        """The log now starts at `offset`: its epoch is kept, and begins there."""
        keep = bisect_right(self._starts, offset, key=lambda start: start.offset) - 1
        if keep >= 0:
            self._starts[: keep + 1] = [EpochStart(self._starts[keep].epoch, offset)]
