"""Types of the native kernel. Everything here is wrapped by a documented function of `records` or `ring`."""

from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ringlog.errors import CorruptBatch

Buffer: TypeAlias = Any
"""Anything with the C-contiguous buffer protocol: bytes, bytearray, memoryview, mmap, NumPy arrays."""

# -- checksums and hashes (bind_checksums.cpp) -------------------------------------------------------------

def crc32c(data: Buffer, seed: int = 0) -> int:
    """CRC32C of `data`, continuing `seed` (the CRC of what came before). Releases the GIL for long inputs."""

def crc32c_portable(data: Buffer, seed: int = 0) -> int:
    """The same by tables alone: what `crc32c` runs on machines without CRC instructions."""

def crc32c_streamed(data: Buffer, seed: int = 0) -> int:
    """The same by CRC instructions, where there are some; what `crc32c` runs on machines that cannot fold."""

def crc32c_path() -> str:
    """`avx2`, `sse4.2`, `armv8` or `portable`: what `crc32c` runs on this machine."""

def murmur2(key: Buffer) -> int:
    """Kafka's hash of a key, as a signed 32-bit integer."""

def partition_column(
    offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    data: Buffer,
    partitions: int,
    out: npt.NDArray[np.int32],
) -> None:
    """The partition of each key `data[offsets[i]:offsets[i + 1]]` into `out`; ValueError on bad offsets."""

# -- scanning and stamping (bind_scan.cpp) -----------------------------------------------------------------

BATCH_BYTES_MAX: int
RECORDS_PER_BATCH_MAX: int
HEADERS_PER_RECORD_MAX: int
DECOMPRESSED_BYTES_MAX: int

def scan(
    data: Buffer,
    level: int,
    bytes_max: int,
    expected_offset: int,
    dense: bool,
    min_epoch: int,
    gapless: bool,
    only_whole: bool,
) -> tuple[bytearray, int, CorruptBatch | None, bool]:
    """BATCH_TABLE rows of the whole batches, the byte behind them, the fault that ended them, and whether
    that is only a buffer that ends too early. `level`: 0 headers, 1 CRC, 2 full. `expected_offset`: -1 for
    any. With `only_whole`, raises CorruptBatch for a fault before any row is made. Releases the GIL."""

def open_batches(
    data: Buffer, check_crc: bool, include_control: bool
) -> tuple[bytearray, list[int], int | None]:
    """BATCH_TABLE rows of a buffer of whole batches, without control batches unless they are included; which
    of the rows are compressed; and the offset behind all batches, None when there is none. Raises
    CorruptBatch for a fault before any row is made. Releases the GIL."""

def copy_checked(into: list[memoryview], data: Buffer) -> None:
    """Copies batches to memory in several pieces; raises CorruptBatch at the first wrong header or CRC. ValueError when
    the pieces are not as large as the data. Releases the GIL."""

def find_batch(data: Buffer, start: int, min_offset: int, bytes_max: int) -> int:
    """Where the first whole batch at or behind `start` begins, or -1. Releases the GIL."""

def stamp(data: Buffer, base_offset: int, leader_epoch: int, append_time_ms: int | None) -> int:
    """Stamps batches in place and returns the next offset; raises CorruptBatch before a byte is changed."""

# -- encoding (bind_encode.cpp) ----------------------------------------------------------------------------

BatchFields: TypeAlias = tuple[int, int, int, int, int, int]
"""base_offset, leader_epoch, producer_id, producer_epoch, base_sequence, attributes."""

@overload
def encode_columns(
    values: Any,
    keys: Any | None,
    timestamps: Any,
    headers: Any | None,
    start: int,
    stop: int,
    fields: BatchFields,
    seal: bool,
    rows: npt.NDArray[np.int64] | None = None,
    bytes_target: int = 0,
    headroom: int = 0,
) -> bytearray: ...
@overload
def encode_columns(
    values: Any,
    keys: Any | None,
    timestamps: Any,
    headers: Any | None,
    start: int,
    stop: int,
    fields: BatchFields,
    seal: bool,
    rows: npt.NDArray[np.int64] | None,
    bytes_target: int,
    headroom: int,
    into: memoryview | None,
) -> bytearray | int:
    """A batch of rows `start` to `stop` (-1: the end). Without `seal` its CRC is left out. Releases the GIL.
    With `rows`, start and stop are places in that list of row numbers. With a `bytes_target`, only as many
    records as fit, at least one. The batch lies behind `headroom` bytes of zero. It is made in the memory `into` if
    that is given and has room: then the bytes are returned that are used there.
    ValueError for columns that do not fit each other, BatchTooLarge for too many bytes."""

def encode_objects(
    values: Any, keys: Any | None, timestamps: Any, headers: Any | None, fields: BatchFields, seal: bool
) -> bytearray:
    """A batch of sequences of bytes or None; TypeError for anything else in them."""

def encode_empty(last_offset: int, max_timestamp: int, fields: BatchFields) -> bytearray:
    """A batch without records that keeps the offsets up to `last_offset`."""

def fold(batch: Buffer, payload: Buffer, codec: int, headroom: int = 0) -> bytearray:
    """The batch with its records replaced by `payload`, their compressed form, and its CRC made. Both lie behind
    `headroom` bytes."""

# -- gathering (bind_builder.cpp) --------------------------------------------------------------------------

def gather(items: Any, what: str) -> tuple[bytearray, bytearray, bytearray | None]:
    """A sequence of bytes-like, str or None as offsets (int32 where they suffice, else int64), data, and a bitmap
    of what is valid, None if nothing is null. TypeError names `what`."""

def key_partitions(keys: Any, partitions: int) -> bytearray:
    """The partition of each key of a column, as int32; -1 for a key that is null. Releases the GIL."""

def seal_for(data: Buffer, headroom: int, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Gives the sealed batch behind `headroom` bytes its producer's fields, in place, without reading its records."""

_Future = TypeVar("_Future")

class BatchBuilder(Generic[_Future]):
    """A batch that grows record by record."""

    def __init__(
        self, bytes_target: int, bytes_max: int, headroom: int, future_type: type[_Future], state: object
    ) -> None:
        """`future_type`: a subclass of tuple, made as (state, index)."""

    def append(self, value: Any, key: Any, timestamp: int | None, headers: Any) -> _Future | None:
        """A future, or None when the batch is closed, or the record would pass `bytes_target` and is not the first.
        TypeError and ValueError name the argument; BatchTooLarge when it alone would pass `bytes_max`."""

    def extend(
        self,
        values: Any,
        keys: Any,
        timestamps: Any,
        headers: Any,
        start: int,
        stop: int,
        rows: npt.NDArray[np.int64] | None,
        bytes_most: int,
    ) -> int:
        """Append records of columns, as `encode_columns` takes them: all, or none. How many; 0: the batch has no room
        for them, or is closed; -1: they take more than `bytes_most`."""

    def close(self) -> None:
        """Take no more records, not even one that is being read."""

    def finish(self, fields: BatchFields, seal: bool) -> bytearray:
        """The batch behind `headroom` bytes; nothing can be appended any more. Releases the GIL."""

    @property
    def count(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def timestamps(self) -> bytes:
        """One int64 for each record."""

# -- decoding (bind_decode.cpp) ----------------------------------------------------------------------------

BytesColumn: TypeAlias = tuple[bytearray, bytearray, bytearray | None]
"""int32 offsets, one more than there are elements; data; a bitmap of what is valid, None if nothing is null."""

def decode_columns(
    data: Buffer,
    rows: Buffer,
    payloads: list[memoryview | None] | None,
    offset: bool,
    timestamp: bool,
    key: bool,
    value: bool,
    headers: bool,
) -> tuple[
    int,
    bytearray | None,
    bytearray | None,
    BytesColumn | None,
    BytesColumn | None,
    bytearray | None,
    BytesColumn | None,
    BytesColumn | None,
]:
    """The number of records of the batches that `rows`, a BATCH_TABLE, describes, and their columns: offset,
    timestamp (int64), key, value, header offsets (int32), header key, header value; None for each that is not
    wanted, and for the last two when no record has a header. `payloads` holds the unfolded records of batches
    that are compressed. Raises CorruptBatch before any column is made. Releases the GIL."""

def records_bytes_needed(prefix: Buffer, row: Buffer) -> tuple[int, int]:
    """The bytes that the records of a batch take at least, and likely, judged by the first of them. Raises
    CorruptBatch when no bytes that follow could make them right."""

_Record = TypeVar("_Record")

class RecordIndex(Generic[_Record]):
    """Random access to the records of batches; each is made when asked for. Holds the buffer."""

    def __init__(
        self,
        data: Buffer,
        rows: Buffer,
        payloads: list[memoryview | None] | None,
        record_type: type[_Record],
    ) -> None:
        """`record_type`: a subclass of tuple with the fields offset, timestamp, key, value, headers."""

    def __len__(self) -> int: ...
    def get(self, i: int) -> _Record: ...
    def slice(self, start: int, stop: int) -> list[_Record]: ...
    def offset(self, i: int) -> int: ...
    def timestamp(self, i: int) -> int: ...
    def key(self, i: int) -> bytes | None: ...
    def value(self, i: int) -> bytes | None: ...
    def headers(self, i: int) -> list[tuple[str, bytes | None]]: ...
    def find(self, offset: int) -> int:
        """The first record at or above an offset; the number of records when all lie below."""

def tuple_pairs(type: type[_Record], owner: object, start: int, stop: int) -> list[_Record]:
    """The tuples (owner, start) to (owner, stop - 1), each of `type`: a subclass of tuple with empty slots.

    The owner must not hold them: the garbage collector does not look at them.
    """

# -- Arrow (bind_arrow.cpp) --------------------------------------------------------------------------------

ArrowTree: TypeAlias = tuple[str, str, bool, int, tuple[Buffer | None, ...], tuple["ArrowTree", ...]]
"""name, Arrow format, nullable, length, buffers, children."""

def export_arrow(tree: ArrowTree) -> tuple[object, object]:
    """Capsules of an ArrowSchema and an ArrowArray over the tree's buffers, which they keep alive."""

# -- records as Arrow columns (bind_arrow_records.cpp) ------------------------------------------------------

class TopicText:
    """The name of a topic, for the column of every batch from it."""

    def __init__(self, name: str) -> None: ...

class ArrowRecords:
    """The records of batches as one ArrowArray of structs: topic, partition, offset, timestamp, key, value, headers.

    `rows` and `payloads` as for `decode_columns`. Raises CorruptBatch as that does, and ValueError for columns of more
    than 2 GiB. Releases the GIL. What it is made of is nobody's but its own."""

    def __init__(
        self,
        data: Buffer,
        rows: Buffer,
        payloads: list[memoryview | None] | None,
        topic: TopicText,
        partition: int,
    ) -> None: ...
    @property
    def address(self) -> int:
        """Of the ArrowArray, for whoever takes it over, which can be done once."""
    @property
    def first_offset(self) -> int:
        """Where the first batch begins; 0 when there is none."""

# -- compaction (bind_compact.cpp) -------------------------------------------------------------------------

class OffsetMap:
    """The latest offset of each key, in memory of a fixed size. Keys are known by a hash of 128 bits."""

    def __init__(self, bytes: int, seed: Buffer) -> None:
        """`seed`: 16 random bytes."""

    @property
    def size(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def get(self, key: Buffer) -> int:
        """The highest offset that was put for a key, or -1."""

    def put(self, key: Buffer, offset: int) -> bool:
        """False when the key is new and there is no room for it."""

    def note(
        self, data: Buffer, rows: Buffer, payloads: list[memoryview | None] | None, start_offset: int
    ) -> int:
        """Puts the keys of all records from an offset on. Returns the first offset that found no room, or -1. Raises
        CorruptBatch. Releases the GIL."""

    def filter(
        self, data: Buffer, rows: Buffer, end_offset: int, drop_tombstones: bool, live: Buffer, out: Buffer
    ) -> tuple[int, int, bool]:
        """Copies uncompressed batches to `out` without the records below `end_offset` that have a later one. `live`:
        base offsets, int64 and ascending, of batches that stay though nothing is left in them. Returns bytes
        written, records kept, and whether anything was left out. Raises CorruptBatch. Releases the GIL."""

    def filter_unfolded(
        self,
        data: Buffer,
        row: Buffer,
        payload: Buffer,
        end_offset: int,
        drop_tombstones: bool,
        keep_empty: bool,
    ) -> bytearray | None:
        """What is left of a compressed batch, uncompressed, b"" for nothing; None when all of it is. Raises
        CorruptBatch. Releases the GIL."""

# -- rings (bind_ring.cpp) ---------------------------------------------------------------------------------

RING_HEADER_BYTES: int
RING_CAPACITY_MAX: int
RING_KIND_PADDING: int

def ring_body_bytes_max(capacity: int) -> int: ...
def ring_format(memory: Buffer, capacity: int, generation: int) -> None: ...
def ring_capacity(memory: Buffer, generation: int) -> int: ...
def ring_retire(memory: Buffer, generation: int) -> None: ...
def copy_batches(into: Buffer, source: Buffer) -> bytearray:
    """A DRAIN_ROW of the copy, without what a frame's header says."""

class RingWriter:
    def __init__(self, memory: Buffer, generation: int, doorbell_fd: int = -1) -> None: ...
    def write(self, data: Buffer, kind: int = 0, wakes: bool = True) -> bool: ...
    def write_many(self, offsets: npt.NDArray[np.int64], data: Buffer, kind: int = 0) -> int: ...
    def claim(self, body_bytes: int) -> int | None: ...
    def commit(self, kind: int = 0) -> None: ...
    def abort(self) -> None: ...
    def used_bytes(self) -> int: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def capacity(self) -> int: ...
    @property
    def generation(self) -> int: ...

class RingReader:
    def __init__(self, memory: Buffer, generation: int) -> None: ...
    def walk(self, messages_max: int) -> list[tuple[int, int, int]]:
        """Kind, offset of the body in the memory and its bytes, for each message."""
    def drain(self, messages_max: int, bytes_max: int) -> tuple[bytearray, bytearray]:
        """DRAIN_ROW and DRAIN_GROUP tables."""
    def release(self) -> None: ...
    def announce_wait(self) -> bool: ...
    def withdraw_wait(self) -> None: ...
    def close(self) -> None: ...
    @property
    def ended(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def capacity(self) -> int: ...
    @property
    def generation(self) -> int: ...

# -- lending (bind_lend.cpp) -------------------------------------------------------------------------------

GIVE_BACK: int
"""Address of the C function `void give_back(void* data, void* loan)`, which any thread may call, once for each loan."""

def lend(buffer: Buffer) -> tuple[int, int, int]:
    """Keep a buffer where it is until it is given back: the address of its bytes, how many, and the loan."""

def take_back() -> int:
    """Let go of all buffers that were given back; how many are still lent."""
