"""The text that people read: aligned columns, local times, bytes made readable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cli.printable import printable
from ringlog.log.dump import (
    Batch,
    FileKind,
    IndexEntry,
    Line,
    MovedPoint,
    Owner,
    PartitionState,
    Preallocated,
    ProducerEntry,
    Record,
    SnapshotHead,
    TimeIndexEntry,
    Unreadable,
)
from ringlog.log.state import ActivePoint

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_WIDTH = len("2024-01-01T00:00:00.000+00:00")
_BATCH = "{:>12}  {:<27}  {:>8}  {:>10}  {:<6}  {:<3}  {:>5}  {:<22}  {:<29}  {:<29}  {}"
_HEADINGS = {
    "batches": _BATCH.format(
        *("position", "offsets", "records", "bytes", "codec", "crc", "epoch"),
        *("producer/epoch/seq", "first", "latest", "flags"),
    ),
    "records": f"{'offset':>12}  {'timestamp':<{_TIME_WIDTH}}  key  value  headers",
    FileKind.OFFSET_INDEX: f"{'byte':>10}  {'offset':>20}  {'position':>12}",
    FileKind.TIME_INDEX: f"{'byte':>10}  {'timestamp':<{_TIME_WIDTH}}  {'offset':>20}",
}


class TextLines:
    """Formats lines of a dump.

    >>> print(TextLines(utc=True).line(Record(7, 0, b"lamp", b"on", [])), end="")
               7  1970-01-01T00:00:00.000+00:00  "lamp"  "on"
    """

    def __init__(self, *, utc: bool = False, max_bytes: int = 256) -> None:
        self._utc = utc
        self._max_bytes = max_bytes

    def heading(self, path: str, kind: FileKind, *, records: bool) -> str:
        """What stands above the lines of a file."""
        key = ("records" if records else "batches") if kind is FileKind.SEGMENT else kind
        columns = _HEADINGS.get(key)
        return f"{printable(path)}\n" + (f"{columns}\n" if columns else "")

    def line(self, line: Line) -> str:
        """One line of a dump, or several for a state."""
        match line:
            case Batch():
                text = self._batch(line)
            case Record():
                text = self._record(line)
            case Unreadable():
                text = f"BROKEN bytes {line.position}..{line.end}: {line.reason}"
            case Preallocated():
                text = f"{line.end - line.position} bytes of preallocated space from byte {line.position} on"
            case IndexEntry():
                text = f"{line.position:>10}  {line.offset:>20}  {line.target:>12}"
            case TimeIndexEntry():
                text = f"{line.position:>10}  {self.time(line.timestamp):<{_TIME_WIDTH}}  {line.offset:>20}"
            case SnapshotHead():
                text = f"producers just before offset {line.next_offset}: {line.producers}"
            case ProducerEntry():
                text = self._producer(line)
            case PartitionState():
                text = self._state(line)
            case MovedPoint():
                text = (
                    f"point {line.number} of state {line.generation}: recovery point at {self._place(line.active)}; "
                    f"{len(line.producers or b'')} bytes of producers' state"
                )
            case Owner():
                text = f"made for partition id {line.partition} of cluster {line.cluster_id}"
        return text.rstrip() + "\n"

    def time(self, timestamp: int) -> str:
        """A timestamp as ISO time; `-` for none, and the number where no calendar has it.

        >>> TextLines(utc=True).time(1_700_000_000_123), TextLines().time(-1), TextLines().time(2**62)
        ('2023-11-14T22:13:20.123+00:00', '-', '4611686018427387904 ms')
        """
        if timestamp == -1:
            return "-"
        try:
            moment = _EPOCH + timedelta(milliseconds=timestamp)
            return (moment if self._utc else moment.astimezone()).isoformat(timespec="milliseconds")
        except (OverflowError, ValueError, OSError):
            return f"{timestamp} ms"

    def _batch(self, batch: Batch) -> str:
        producer = "-"
        if batch.producer_id >= 0:
            producer = f"{batch.producer_id}/{batch.producer_epoch}/{batch.base_sequence}"
        return _BATCH.format(
            batch.position,
            f"{batch.base_offset}..{batch.last_offset}",
            batch.record_count,
            batch.nbytes,
            batch.codec.name.lower(),
            "ok" if batch.crc_ok else "BAD",
            batch.leader_epoch if batch.leader_epoch >= 0 else "-",
            producer,
            self.time(batch.base_timestamp),
            self.time(batch.max_timestamp),
            ",".join(batch.flags),
        )

    def _record(self, record: Record) -> str:
        headers = ", ".join(f"{key}={self.data(value)}" for key, value in record.headers)
        fields = [self.data(record.key), self.data(record.value)] + ([f"{{{headers}}}"] if headers else [])
        return f"{record.offset:>12}  {self.time(record.timestamp):<{_TIME_WIDTH}}  " + "  ".join(fields)

    def data(self, value: bytes | None) -> str:
        r"""Bytes as a person can read them: text as it is, and codes for what is none.

        >>> print(TextLines(max_bytes=8).data(b'a "b"\n\xff and more'), TextLines().data(b"\\xff"))
        "a \"b\"\n\xff " (+8 bytes) "\\xff"
        """
        if value is None:
            return "null"
        # A backslash of the data is doubled first: those that stand alone are ours.
        escaped = value[: self._max_bytes].replace(b"\\", b"\\\\")
        shown = printable(escaped.decode("utf-8", "backslashreplace").replace('"', '\\"'))
        rest = len(value) - self._max_bytes
        return f'"{shown}"' + (f" (+{rest} bytes)" if rest > 0 else "")

    def _producer(self, entry: ProducerEntry) -> str:
        batches = ", ".join(
            f"{b.base_sequence}..{b.last_sequence} at {b.base_offset}..{b.last_offset}" for b in entry.batches
        )
        return f"producer {entry.producer_id} epoch {entry.epoch} seen {self.time(entry.seen_ms)}: sequences {batches}"

    @staticmethod
    def _place(point: ActivePoint) -> str:
        return f"offset {point.next_offset} at byte {point.position} of segment {point.base_offset}"

    def _state(self, state: PartitionState) -> str:
        point, saved = state.active, state.active.indexes
        lines = [
            f"closed cleanly    {'yes' if state.clean else 'no'}",
            f"log start offset  {state.log_start_offset}",
            f"recovery point    {self._place(point)}",
            f"active segment    since {self.time(point.created_ms)}, latest timestamp "
            f"{self.time(point.max_timestamp)} at offset {point.max_timestamp_offset}",
            f"saved indexes     {saved.index_entries} entries (crc {saved.index_crc:08x}), "
            f"{saved.time_index_entries} time entries (crc {saved.time_index_crc:08x})",
            f"one write reaches {state.reach_bytes} bytes"
            if state.reach_bytes
            else "writes may be lost in any number",
            f"producers         {'in a snapshot' if state.has_producers else 'none'}",
            "leader epochs     " + (", ".join(f"{e.epoch} from {e.offset}" for e in state.epochs) or "none"),
            f"sealed segments   {len(state.sealed)}",
        ]
        lines += [
            f"  {e.base_offset}..{e.next_offset - 1}  {e.bytes} bytes  latest {self.time(e.max_timestamp)}  "
            f"index crc {e.index_crc:08x}  time index crc {e.time_index_crc:08x}"
            + ("  QUARANTINED" if e.quarantined else "")
            for e in state.sealed
        ]
        return "\n".join(lines)
