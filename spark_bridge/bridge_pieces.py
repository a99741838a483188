"""The part of a decoded piece that answers a question: within its range, and within its credit."""

from __future__ import annotations

import pyarrow as pa

from ringlog.net.framing import Flag, pack_header
from spark_bridge.arrow_rows import within
from spark_bridge.bridge_cache import Piece
from spark_bridge.bridge_wire import HEAD_BYTES, READ, ReadRequest, pack_reply_head


def fitting(batch: pa.RecordBatch, credit_bytes: int) -> pa.RecordBatch:
    """As many of the first records as the credit has room for, and at least one."""
    while batch.num_rows > 1 and batch.nbytes > credit_bytes:
        share = batch.num_rows * credit_bytes // batch.nbytes
        batch = batch.slice(0, max(1, min(share, batch.num_rows - 1)))
    return batch


def answer(piece: Piece, request: ReadRequest) -> tuple[pa.RecordBatch, int]:
    """The records for a question, and the offset to ask for next."""
    rows = within(piece.batch, request.start, request.end)
    fit = fitting(rows, request.credit_bytes)
    if fit.num_rows < rows.num_rows:
        return fit, rows.column("offset")[fit.num_rows].as_py()
    return fit, piece.next_offset


def answer_frame(piece: Piece, request: ReadRequest, correlation: int) -> bytes:
    """The reply's frame."""
    rows, next_offset = answer(piece, request)
    data = rows.serialize()
    header = pack_header(
        READ, correlation=correlation, body_bytes=HEAD_BYTES + data.size, flags=int(Flag.REPLY)
    )
    return b"".join((header, pack_reply_head(next_offset, data.size), data))
