"""What a voter keeps on disk: who it is, its epoch and vote, a snapshot and the entries behind it. One file.

    ┌────────┬──────────┬─────────┬────────┬───────────────────────────┐
    │ magic  │ sequence │ bytes   │ crc32c │ body: a tagged msgpack    │   little endian, 20 bytes before a body
    │ u32    │ u64      │ u32     │ u32    │ array, see the structs    │   the checksum covers sequence, bytes and body
    └────────┴──────────┴─────────┴────────┴───────────────────────────┘

A save appends one frame, and flushes it; a snapshot, and each opening, replaces the whole file by a rename. A bad frame
at the end is a write that the power took, and is cut. A bad frame with a whole one behind it was flushed once: the disk
has forgotten something, perhaps a vote. Nothing of it can be trusted then: the file is set aside and the node gets
another disk id, so that the quorum takes it for a newcomer. Rot in the very last frame cannot be told from a torn
write.
"""

from __future__ import annotations

import logging
import os
import secrets
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ringlog.consensus.messages import Entry, HardState, Snapshot, Voter, decode_voters
from ringlog.consensus.saving import Restored, Save
from ringlog.errors import CorruptFile, InvalidRequest, check
from ringlog.records.checksum import crc32c

QUORUM_FILE = "quorum.log"
_MAGIC = 0x514C5230
_HEAD = struct.Struct("<IQII")
_MAGIC_BYTES = struct.pack("<I", _MAGIC)

_log = logging.getLogger(__name__)


class _Frame(msgspec.Struct, array_like=True, frozen=True, tag=True, gc=False):
    """The body of a frame."""


class Owner(_Frame, frozen=True, tag="owner"):
    """The first frame: whose file this is."""

    node_id: int
    disk_id: str
    cluster_id: str
    """Empty until the node has joined one."""


class Base(_Frame, frozen=True, tag="base"):
    """The snapshot that the log begins with."""

    snapshot: Snapshot


class Saved(_Frame, frozen=True, tag="saved"):
    """One save, whole or not at all."""

    state: HardState | None
    """Epoch and vote, when they changed."""
    entries: tuple[Entry, ...]
    """What stood at the index of the first, and behind it, is void."""


_decoder: msgspec.msgpack.Decoder[Owner | Base | Saved] = msgspec.msgpack.Decoder(Owner | Base | Saved)


class DirectoryOwner(NamedTuple):
    """Whom the file of a directory is of, and which nodes vote with it."""

    node_id: int
    cluster_id: str
    voters: tuple[int, ...]


def look(data_dir: str) -> DirectoryOwner | None:
    """Whose directory it is; None where no voter has been, or the file cannot tell."""
    try:
        with open(os.path.join(data_dir, QUORUM_FILE), "rb") as file:
            found = _read(file.read())
    except (FileNotFoundError, CorruptFile):
        return None
    owner, base, *saved = found.bodies
    if not isinstance(owner, Owner) or not isinstance(base, Base):
        return None
    voters = base.snapshot.voters
    for entry in [entry for one in saved if isinstance(one, Saved) for entry in one.entries]:
        if entry.kind == "voters":
            voters = decode_voters(entry.data)
    ids = tuple(sorted(voter.node_id for voter in voters))
    return DirectoryOwner(owner.node_id, owner.cluster_id, ids)


class _Found(NamedTuple):
    """What a file holds, and where the good part of it ends."""

    bodies: list[Owner | Base | Saved]
    good_bytes: int


class QuorumStore:
    """The file of one voter. Calls block: they are rare, and a voter must not speak before they are done anyway."""

    def __init__(self, data_dir: str, node_id: int, voters: tuple[Voter, ...]) -> None:
        self._path = os.path.join(data_dir, QUORUM_FILE)
        self._dir = data_dir
        self._sequence = 0
        self._file_bytes = 0
        self._state = HardState()
        self._snapshot = Snapshot(0, 0, voters, b"")
        self._entries: list[Entry] = []
        self._owner = Owner(node_id, secrets.token_hex(8), "")
        self._fd = -1
        self._failed = False
        """A write or a flush failed. Neither is tried again: the kernel takes what it could not write for written."""
        self._open(node_id)

    @property
    def me(self) -> Voter:
        return Voter(self._owner.node_id, self._owner.disk_id)

    @property
    def cluster_id(self) -> str:
        return self._owner.cluster_id

    @property
    def file_bytes(self) -> int:
        """How long the file is: the reason to make a snapshot."""
        return self._file_bytes

    def restored(self) -> Restored:
        """What the voter begins with."""
        return Restored(self._state, self._snapshot, tuple(self._entries))

    def save(self, save: Save) -> None:
        """Make a save durable: when this returns, it survives the loss of power."""
        check(not self._failed, "a file whose write failed takes nothing more")
        if save.hard_state is not None:
            self._state = save.hard_state
        if save.snapshot is not None:
            self._snapshot, self._entries = save.snapshot, list(save.entries)
            self._rewrite()
            return
        if not save.empty:
            self._put(save.entries)
            self._append(Saved(save.hard_state, save.entries))

    def _put(self, entries: tuple[Entry, ...]) -> None:
        if entries:
            keep = entries[0].index - self._snapshot.last_index - 1
            check(0 <= keep <= len(self._entries), "entries follow what is saved")
            self._entries[keep:] = entries

    def join(self, cluster_id: str) -> None:
        """The node belongs to this cluster from now on."""
        if self._owner.cluster_id != cluster_id:
            check(not self._failed, "a file whose write failed takes nothing more")
            check(not self._owner.cluster_id, "a node never changes its cluster")
            self._owner = Owner(self._owner.node_id, self._owner.disk_id, cluster_id)
            self._rewrite()

    def close(self) -> None:
        os.close(self._fd)

    # -- the file ----------------------------------------------------------------------------------------------

    def _open(self, node_id: int) -> None:
        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            self._rewrite()
            return
        try:
            found = _read(data)
        except CorruptFile as damage:
            aside = f"{self._path}.{secrets.token_hex(4)}.bad"
            os.rename(self._path, aside)
            _log.error(
                "%s: %s. It is kept as %s, and this node joins the quorum anew", self._path, damage, aside
            )
            self._rewrite()
            return
        for body in found.bodies:
            self._replay(body)
        if self._owner.node_id != node_id:
            raise InvalidRequest(
                f"{self._dir} belongs to node {self._owner.node_id}, not {node_id}: use another --data-dir or --node-id"
            )
        if found.good_bytes < len(data):
            _log.warning("%s: %d torn bytes are cut", self._path, len(data) - found.good_bytes)
        # What was read is believed from now on, and may be in memory only: a killed process did not flush it, or a
        # flush failed, after which none writes the same pages of the same file again. So, another file.
        self._rewrite()

    def _replay(self, body: Owner | Base | Saved) -> None:
        self._sequence += 1
        match body:
            case Owner():
                self._owner = body
            case Base():
                self._snapshot, self._entries = body.snapshot, []
            case Saved():
                self._state = body.state or self._state
                self._put(body.entries)

    def _rewrite(self) -> None:
        """A new file with all that is known, in the place of the old one."""
        bodies = [self._owner, Base(self._snapshot), Saved(self._state, tuple(self._entries))]
        self._sequence = 0
        data = self._frames(bodies)
        self._failed = True  # until it is done
        fresh = os.open(
            self._path + ".tmp", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        _write(fresh, data)
        os.fsync(fresh)
        os.rename(self._path + ".tmp", self._path)
        directory = os.open(self._dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._file_bytes, self._failed = fresh, len(data), False

    def _append(self, saved: Saved) -> None:
        data = self._frames([saved])
        self._failed = True  # until it is done
        _write(self._fd, data)
        os.fdatasync(self._fd)
        self._failed = False
        self._file_bytes += len(data)

    def _frames(self, bodies: Sequence[_Frame]) -> bytes:
        parts: list[bytes] = []
        for body in bodies:
            encoded = msgspec.msgpack.encode(body)
            parts += [_head(self._sequence, encoded), encoded]
            self._sequence += 1
        return b"".join(parts)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _head(sequence: int, body: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, sequence, len(body), _checksum(sequence, body))


def _checksum(sequence: int, body: bytes | memoryview) -> int:
    return crc32c(struct.pack("<QI", sequence, len(body)) + bytes(body))


def _frame_at(data: bytes, at: int) -> tuple[int, memoryview] | None:
    """Sequence and body of a whole frame that begins here."""
    if at + _HEAD.size > len(data):
        return None
    magic, sequence, size, crc = _HEAD.unpack_from(data, at)
    body = memoryview(data)[at + _HEAD.size : at + _HEAD.size + size]
    if magic != _MAGIC or len(body) != size or _checksum(sequence, body) != crc:
        return None
    return sequence, body


def _read(data: bytes) -> _Found:
    """All frames up to the end, or up to a torn one; CorruptFile when something that was flushed cannot be read."""
    bodies: list[Owner | Base | Saved] = []
    at = 0
    while at < len(data):
        frame = _frame_at(data, at)
        if frame is None or frame[0] != len(bodies):
            if any(sequence >= len(bodies) for sequence in _whole_frames(data, at + 1)):
                raise CorruptFile("frame", at, "it cannot be read, and a whole one follows")
            break
        try:
            bodies.append(_decoder.decode(frame[1]))
        except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
            raise CorruptFile("frame", at, str(wrong)) from None
        at += _HEAD.size + len(frame[1])
    if len(bodies) < 3:
        raise CorruptFile("file", at, "it does not begin as every such file does")
    return _Found(bodies, at)


def _whole_frames(data: bytes, start: int) -> Iterator[int]:
    """Sequences of all whole frames behind a position, wherever they begin."""
    at = data.find(_MAGIC_BYTES, start)
    while at >= 0:
        frame = _frame_at(data, at)
        if frame is not None:
            yield frame[0]
        at = data.find(_MAGIC_BYTES, at + 1)
