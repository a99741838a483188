"""A column of byte strings in Arrow's memory layout, made of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ringlog.errors import InvalidRequest
from ringlog.native import _kernel

# Types, not their names: a name would be looked up anew in each comparison, and a column is often small.
_OFFSET_TYPES = (np.dtype(np.int32), np.dtype(np.int64))
_BITMAP_TYPE = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Element `i` is `data[offsets[i]:offsets[i + 1]]`, or None where bit `i` of `valid` is not set.

    >>> column = Column.of([b"one", None, b"three"])
    >>> column.offsets.tolist(), column[1], list(column)
    ([0, 3, 3, 8], None, [b'one', None, b'three'])
    """

    offsets: npt.NDArray[Any]
    """int32 or int64, one entry more than there are elements."""
    data: Any
    """Any buffer of bytes."""
    valid: npt.NDArray[np.uint8] | None = None
    """A bitmap, as `np.packbits(mask, bitorder="little")` makes it. None: no element is null."""

    def __post_init__(self) -> None:
        offsets = self.offsets
        if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype not in _OFFSET_TYPES:
            raise InvalidRequest("offsets must be an int32 or int64 array, one entry longer than the column")
        if not offsets.flags.c_contiguous:
            raise InvalidRequest("offsets must be contiguous")
        valid = self.valid
        if valid is not None and (valid.dtype != _BITMAP_TYPE or 8 * len(valid) < len(offsets) - 1):
            raise InvalidRequest("valid must be a uint8 bitmap with a bit for each element")

    @classmethod
    def of(cls, items: Sequence[bytes | None]) -> Column:
        """A column of Python objects; for tests and small inputs."""
        sizes = np.fromiter((len(item or b"") for item in items), dtype=np.int64, count=len(items))
        offsets = np.zeros(len(items) + 1, dtype=np.int64)
        np.cumsum(sizes, out=offsets[1:])
        data = np.frombuffer(b"".join(item or b"" for item in items), dtype=np.uint8)
        if None not in items:
            return cls(offsets, data)
        mask = np.fromiter((item is not None for item in items), dtype=np.bool_, count=len(items))
        return cls(offsets, data, np.packbits(mask, bitorder="little"))

    @classmethod
    def gather(cls, items: Any, what: str = "items") -> Column:
        """A column of a sequence of bytes-like, str (as UTF-8) or None, natively; errors name `what`.

        >>> list(Column.gather(["é", b"x", None]))
        [b'\\xc3\\xa9', b'x', None]
        """
        try:
            offsets, data, valid = _kernel.gather(items, what)
        except UnicodeEncodeError as wrong:
            raise InvalidRequest(f"{what}: {wrong}") from None
        wide = len(offsets) != 4 * (len(items) + 1)
        return cls(
            np.frombuffer(offsets, dtype=np.int64 if wide else np.int32),
            data,
            None if valid is None else np.frombuffer(valid, dtype=np.uint8),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> bytes | None:
        if not -len(self) <= i < len(self):
            raise IndexError(f"element {i} of a column of {len(self)}")
        i %= len(self)
        if self.valid is not None and not self.valid[i >> 3] >> (i & 7) & 1:
            return None
        return bytes(memoryview(self.data)[self.offsets[i] : self.offsets[i + 1]])

    def __iter__(self) -> Iterator[bytes | None]:
        return (self[i] for i in range(len(self)))

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The column as an Arrow array of binary (large_binary for int64 offsets), without a copy. InvalidRequest for
        offsets that lead out of the data: Arrow believes them."""
        offsets = self.offsets
        if offsets[0] < 0 or offsets[-1] > memoryview(self.data).nbytes or np.any(offsets[1:] < offsets[:-1]):
            raise InvalidRequest("offsets must not decrease and must end within the data")
        return _kernel.export_arrow(self.arrow_tree("", nullable=True))

    def arrow_tree(self, name: str, *, nullable: bool, text: bool = False) -> _kernel.ArrowTree:
        """What the kernel's exporter takes for this column."""
        narrow = self.offsets.dtype == np.int32
        letter = "u" if text else "z"
        buffers = (self.valid, self.offsets, self.data)
        return (name, letter if narrow else letter.upper(), nullable, len(self), buffers, ())
