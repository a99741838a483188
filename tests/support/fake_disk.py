"""A disk in memory that loses power, tears sectors, fails and delays, the same way for the same seed.

Nothing is durable that was not flushed, and nothing completes before it is asked for: a submitted call is
carried out when `completions` or `wait` returns it. `crash` gives one of the disks that a power loss at this
moment may leave; `faults` says which calls fail; `hold_all` lets a test decide when a call completes; `calls`
is the list of everything that was asked for, so that a test can fail each call in turn.

It is stricter than a kernel, so that mistakes show: memory that changes under a write, misaligned direct
calls and use after close raise AssertionError; memory given to a read holds rubbish until the read completed.

>>> disk = FakeDisk(seed=1)
>>> disk.make_dir("/data")
>>> file = disk.open("/data/log", write=True, create=True)
>>> disk.wait(disk.write(file, [memoryview(b"hello")], 0, durable=True))
5
>>> disk.crash(random.Random(1), survival=0.0).exists("/data/log")  # its name was not flushed
False
>>> disk.wait(disk.flush_dir("/data"))
0
>>> disk.crash(random.Random(1), survival=0.0).exists("/data/log")
True
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Sequence

from ringlog.disk.api import Completion, File, Space
from ringlog.disk.memory import require_bytes
from ringlog.errors import check
from ringlog.limits import BLOCK_BYTES, SECTOR_BYTES
from tests.support.fake_disk_calls import (
    RUBBISH,
    FakeFile,
    Pending,
    clean,
    complete_read,
    require_aligned,
    require_writable,
)
from tests.support.fake_disk_faults import Call, Faults, PowerLoss
from tests.support.fake_disk_file import Begun, FakeInode
from tests.support.fake_disk_names import FakeNames, parent_of


class FakeDisk:
    """An engine behind `ringlog.disk.api.Disk`, for tests."""

    name = "fake"

    def __init__(self, seed: int = 0, *, faults: Faults | None = None, delays: bool = False) -> None:
        self.faults = faults if faults is not None else Faults()
        self.delays = delays
        """Let calls stay in flight for a while: each call of `completions` then returns a part of them."""
        self.calls: list[Call] = []
        self.steps = 0
        """Moments at which the power may go: before a call or a submission, and while calls are in flight."""
        self.is_watching = False
        """Whether somebody watches a doorbell that nobody rings: to wait with no call in flight takes for ever."""
        self._rng = random.Random(seed)
        self._names = FakeNames()
        self._kinds: Counter[str] = Counter()
        self._queued: dict[int, Pending] = {}
        self._submitted: dict[int, Pending] = {}
        self._kept: list[Completion] = []
        self._held: set[int] = set()
        self._hold_rules: list[tuple[str, str]] = []
        self._open_files: set[FakeFile] = set()
        self._is_down = False
        self._has_power = True

    # -- for tests ---------------------------------------------------------------------------------------
    def crash(self, rng: random.Random, *, survival: float | None = None) -> FakeDisk:
        """One of the disks that a power loss at this moment may leave. This disk does not change.

        `survival` is the share of unflushed sectors, sizes and names that made it: 0.0 loses all, 1.0 keeps
        all; None lets `rng` choose, with the two ends as likely as what lies between.
        """
        if survival is None:
            survival = rng.choice((0.0, 0.25, 0.5, 0.75, 1.0))
        begun: dict[int, list[Begun]] = {}
        in_flight = list(self._submitted.values())
        rng.shuffle(in_flight)
        for pending in in_flight:
            if pending.file is not None and pending.call.kind in ("write", "preallocate"):
                end = pending.call.position + pending.call.length
                change = Begun(end, pending.call.position, pending.data)
                begun.setdefault(id(pending.file.inode), []).append(change)
        after = FakeDisk(seed=rng.getrandbits(32))
        after._names.dirs = set(self._names.dirs)
        for path, inode in sorted(self._names.after_power_loss(rng, survival).items()):
            content = inode.after_power_loss(begun.get(id(inode), ()), rng, survival)
            after._names.durable[path] = after._names.live[path] = FakeInode(content, bytearray(content))
            after._names.make_dir(parent_of(path))  # one whose rename or removal was lost
        return after

    def after_death(self, seed: int) -> FakeDisk:
        """The disk as the next process finds it when this one dies now: all that was submitted is carried out, and
        what was not flushed is still to be lost. This disk is not to be used any more."""
        self._queued.clear()
        self._held.clear()
        self._hold_rules.clear()
        while self._submitted:
            self.completions(None)
        after = FakeDisk(seed, faults=Faults(space_bytes=self.faults.space_bytes), delays=self.delays)
        after._names = self._names
        self.lose_power()
        return after

    def lose_power(self) -> None:
        """End this world: what its jobs still clean up is ignored."""
        self._has_power = False

    def hold(self, token: int) -> None:
        """Keep one call in flight until it is released."""
        assert token in self._queued or token in self._submitted, f"call {token} is not in flight"
        self._held.add(token)

    def hold_all(self, kind: str = "", path: str = "") -> None:
        """Keep all calls of this kind in flight, on paths that contain `path`: present and later ones."""
        self._hold_rules.append((kind, path))
        for pending in (*self._queued.values(), *self._submitted.values()):
            self._hold_by_rules(pending.call)

    def release(self, token: int) -> None:
        """Let one held call complete."""
        self._held.remove(token)

    def release_all(self) -> None:
        """Let every held call complete, and hold no more."""
        self._hold_rules.clear()
        self._held.clear()

    @property
    def in_flight_calls(self) -> list[Call]:
        """What was queued or submitted and has not completed, in order."""
        return [pending.call for pending in (*self._submitted.values(), *self._queued.values())]

    @property
    def open_paths(self) -> list[str]:
        """Paths of files that are still open, sorted: a test of leaks."""
        return sorted(file.path for file in self._open_files)

    @property
    def used_bytes(self) -> int:
        """Space taken by the content of all files; a hole counts like data."""
        return sum(len(inode.live) for inode in {id(i): i for i in self._names.live.values()}.values())

    def content(self, path: str) -> bytes:
        """What a program would read from a file now."""
        return bytes(self._names.find(clean(path)).live)

    def durable_content(self, path: str) -> bytes:
        """What of a file is certain to survive a power loss, provided that its name does."""
        return bytes(self._names.find(clean(path)).durable)

    def put(self, path: str, content: bytes) -> None:
        """Make a file, or replace its content, durably with its name: how a test damages a file."""
        path = clean(path)
        self._names.make_dir(parent_of(path))
        inode = self._names.live.get(path) or self._names.create(path)
        self._names.flush_dir(parent_of(path), self._names.sequence)
        inode.live[:] = inode.durable[:] = content
        inode.changes.clear()

    # -- the name space ------------------------------------------------------------------------------------
    def open(self, path: str, *, write: bool = False, create: bool = False, direct: bool = False) -> FakeFile:
        self._immediate("open", path)
        path = clean(path)
        if create and path not in self._names.live and path not in self._names.dirs:
            inode = self._names.create(path)
        else:
            inode = self._names.find(path)
        file = FakeFile(path, inode, writable=write, direct=direct)
        self._open_files.add(file)
        return file

    def close(self, file: File) -> None:
        if not self._has_power:
            return  # a job that is cleaned up after the end of its world
        handle = self._handle(file)
        busy = [p.call for p in (*self._queued.values(), *self._submitted.values()) if p.file is handle]
        assert not busy, f"closed with calls in flight: {busy}"
        handle.is_open = False
        self._open_files.remove(handle)

    def size(self, file: File) -> int:
        return len(self._handle(file).inode.live)

    def exists(self, path: str) -> bool:
        self._require_power()
        path = clean(path)
        return path in self._names.live or path in self._names.dirs

    def list_dir(self, path: str) -> list[tuple[str, int]]:
        self._require_power()
        path = clean(path)
        self._names.require_dir(path)
        return sorted(
            (os.path.basename(name), len(inode.live))
            for name, inode in self._names.live.items()
            if parent_of(name) == path
        )

    def list_dirs(self, path: str) -> list[str]:
        self._require_power()
        return self._names.dirs_in(clean(path))

    def make_dir(self, path: str) -> None:
        self._immediate("make_dir", path)
        self._names.make_dir(clean(path))

    def rename(self, old: str, new: str) -> None:
        self._immediate("rename", old)
        self._names.rename(clean(old), clean(new))

    def remove(self, path: str) -> None:
        self._immediate("remove", path)
        self._names.remove(clean(path))

    def remove_dir(self, path: str) -> None:
        self._immediate("remove_dir", path)
        self._names.remove_dir(clean(path))

    def space(self, path: str) -> Space:
        self._require_power()
        total = 1 << 40 if self.faults.space_bytes is None else self.faults.space_bytes
        return Space(max(0, total - self.used_bytes), total)

    def truncate(self, file: File, size: int) -> None:
        handle = self._handle(file)
        self._immediate("truncate", handle.path, size)
        require_writable(handle)
        handle.inode.resize(size)

    # -- data ------------------------------------------------------------------------------------------------
    def write(self, file: File, pieces: Sequence[memoryview], position: int, *, durable: bool) -> int:
        handle = self._handle(file)
        kept = tuple(pieces)
        if not kept:
            raise ValueError("an empty write")
        for piece in kept:
            require_bytes(piece)
        length = sum(piece.nbytes for piece in kept)
        if handle.direct:
            require_aligned(handle, position, kept)
        return self._queue("write", handle, position, length, pieces=kept, durable=durable)

    def read(self, file: File, into: memoryview, position: int) -> int:
        handle = self._handle(file)
        require_bytes(into, writable=True)
        if handle.direct:
            require_aligned(handle, position, (into,))
        return self._queue("read", handle, position, into.nbytes, into=into)

    def flush(self, file: File) -> int:
        return self._queue("flush", self._handle(file))

    def flush_dir(self, path: str) -> int:
        self._names.require_dir(clean(path))
        return self._queue("flush_dir", None, path=clean(path))

    def preallocate(self, file: File, position: int, length: int) -> int:
        return self._queue("preallocate", self._handle(file), position, length)

    def submit(self) -> None:
        if not self._queued:
            return
        self._step()
        for token, pending in self._queued.items():
            # What a call depends on is fixed here: the bytes of a write, and what a flush has to cover.
            if pending.call.kind == "write":
                pending.data = b"".join(pending.pieces)
            elif pending.call.kind == "read":
                assert pending.into is not None
                pending.into[:] = bytes([RUBBISH]) * pending.into.nbytes
            elif pending.call.kind == "flush":
                assert pending.file is not None
                pending.covers_sequence = pending.file.inode.sequence
            elif pending.call.kind == "flush_dir":
                pending.covers_sequence = self._names.sequence
            self._submitted[token] = pending
        self._queued.clear()

    def completions(self, wait_s: float | None = 0.0) -> list[Completion]:
        self.submit()
        if self._submitted:
            self._step()
        ready = [token for token in self._submitted if token not in self._held]
        if wait_s is None and not ready and not self._kept and (self._submitted or self.is_watching):
            raise AssertionError(f"waits for ever: all calls in flight are held: {self.in_flight_calls}")
        self._rng.shuffle(ready)
        if self.delays and ready:
            may_be_none = wait_s == 0.0 or bool(self._kept)
            ready = ready[: self._rng.randint(0 if may_be_none else 1, len(ready))]
        done, self._kept = self._kept, []
        done.extend(Completion(token, self._complete(token)) for token in ready)
        return done

    def wait(self, token: int) -> int:
        self.submit()
        for at, completion in enumerate(self._kept):
            if completion.token == token:
                del self._kept[at]
                return completion.result
        check(token in self._submitted, f"call {token} is in flight")
        assert token not in self._held, f"waits for ever: call {token} is held"
        self._step()
        return self._complete(token)

    @property
    def in_flight(self) -> int:
        return len(self._queued) + len(self._submitted) + len(self._kept)

    def shutdown(self) -> None:
        while self._queued or self._submitted:
            self.completions(None)
        self._open_files.clear()
        self._is_down = True

    # -- inside ----------------------------------------------------------------------------------------------
    def _step(self) -> None:
        check(not self._is_down, "no call after shutdown")
        if self.steps == self.faults.power_loss_at_step:
            self._has_power = False
        self._require_power()
        self.steps += 1

    def _require_power(self) -> None:
        if not self._has_power:
            raise PowerLoss(f"at step {self.steps}")

    def _note(
        self,
        kind: str,
        path: str,
        position: int = 0,
        length: int = 0,
        *,
        queued: bool,
        durable: bool = False,
    ) -> tuple[Call, int | None]:
        """Write the call down, and see what the plan has for it. Tokens start at 1."""
        self._step()
        number = len(self.calls)
        call = Call(number, kind, path, position, length, number + 1 if queued else 0, durable)
        verdict = self.faults.verdict(number, kind, self._kinds[kind], path)
        self._kinds[kind] += 1
        self.calls.append(call)
        return call, verdict

    def _immediate(self, kind: str, path: str, position: int = 0) -> None:
        _, verdict = self._note(kind, path, position, queued=False)
        if verdict is not None:
            raise OSError(-verdict, os.strerror(-verdict), path)

    def _queue(
        self,
        kind: str,
        file: FakeFile | None,
        position: int = 0,
        length: int = 0,
        *,
        path: str = "",
        pieces: tuple[memoryview, ...] = (),
        into: memoryview | None = None,
        durable: bool = False,
    ) -> int:
        where = path if file is None else file.path
        call, verdict = self._note(kind, where, position, length, queued=True, durable=durable)
        self._queued[call.token] = Pending(call, verdict, file, pieces, into=into, durable=durable)
        self._hold_by_rules(call)
        return call.token

    def _hold_by_rules(self, call: Call) -> None:
        if any(kind in ("", call.kind) and path in call.path for kind, path in self._hold_rules):
            self._held.add(call.token)

    def _handle(self, file: File) -> FakeFile:
        self._require_power()
        assert isinstance(file, FakeFile), f"a file of another engine: {file!r}"
        assert file.is_open, f"used after close: {file.path}"
        assert file in self._open_files, f"a file of another disk, or of one before a crash: {file.path}"
        return file

    def _complete(self, token: int) -> int:
        pending = self._submitted.pop(token)
        kind, inode = pending.call.kind, pending.file.inode if pending.file is not None else None
        if kind == "flush_dir":
            if pending.verdict is None:
                self._names.flush_dir(pending.call.path, pending.covers_sequence)
            return pending.verdict or 0
        assert inode is not None
        if kind == "write":
            return self._complete_write(pending, inode)
        if kind == "read":
            return pending.verdict if pending.verdict is not None else complete_read(pending, inode)
        if kind == "flush":
            if pending.verdict is None:
                inode.flush(pending.covers_sequence)
            else:
                inode.fail_flush(pending.covers_sequence, self._rng)
            return pending.verdict or 0
        return self._complete_preallocate(pending, inode)

    def _complete_write(self, pending: Pending, inode: FakeInode) -> int:
        assert b"".join(pending.pieces) == pending.data, f"memory under a write was modified: {pending.call}"
        assert pending.file is not None
        position, data = pending.call.position, pending.data
        if not pending.file.writable:
            return -errno.EBADF
        if pending.verdict is not None and pending.verdict < 0:
            self._leave_failed_write(inode, position, data)
            return pending.verdict
        length = len(data) if pending.verdict is None else min(pending.verdict, len(data))
        length = self._fitting(inode, position, length)
        if length < 0:
            return length
        inode.write(position, data[:length], durable=pending.durable and length == len(data))
        return length

    def _leave_failed_write(self, inode: FakeInode, position: int, data: bytes) -> None:
        """After an error nobody knows which sectors were written; the length stays."""
        for at in range(0, min(len(data), len(inode.live) - position), SECTOR_BYTES):
            if self._rng.random() < 0.5:
                sector = data[at : min(at + SECTOR_BYTES, len(inode.live) - position)]
                inode.write(position + at, sector, durable=False)

    def _fitting(self, inode: FakeInode, position: int, length: int) -> int:
        """How much of a write finds room: whole blocks, or ENOSPC when there is room for none."""
        if self.faults.space_bytes is None or position + length <= len(inode.live):
            return length
        end = len(inode.live) + max(0, self.faults.space_bytes - self.used_bytes)
        if position + length <= end:
            return length
        fitting = end - end % BLOCK_BYTES - position
        return fitting if fitting > 0 else -errno.ENOSPC

    def _complete_preallocate(self, pending: Pending, inode: FakeInode) -> int:
        assert pending.file is not None
        if not pending.file.writable:
            return -errno.EBADF
        if pending.verdict is not None:
            return pending.verdict
        end = pending.call.position + pending.call.length
        if self.faults.space_bytes is not None:
            growth = max(0, end - len(inode.live))
            if growth > self.faults.space_bytes - self.used_bytes:
                return -errno.ENOSPC
        inode.grow_to(end)
        return 0
