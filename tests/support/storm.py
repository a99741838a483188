"""A storm: everything that a shard does to its logs, at random and at once, with a memory of what must hold.

Appends, reads and searches under way while segments roll, are sealed, truncated, removed, reopened or reconfigured,
deleted, compacted, calls that fail, a disk that is full for a while, restarts and power losses. The same seed is the
same storm, but for the hashes of compaction.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ringlog.errors import DiskFull, OffsetOutOfRange, PartitionBusy, PartitionFenced, RinglogError
from ringlog.limits import KIB, MIB
from ringlog.log.batch import batch_infos
from ringlog.log.events import Fenced, Progress, Quarantined
from ringlog.log.partition import LogStatus
from ringlog.log.removal import sweep_deleted
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.log.store import LogStore
from ringlog.model import Durability, TopicPartition
from ringlog.records.decode import decode
from ringlog.records.scan import check
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults
from tests.support.logs import aligned_memory, batch_of

ROOT = "/data"
_ALLOWED = (OSError, PartitionBusy, OffsetOutOfRange, PartitionFenced, DiskFull)
"""What a storm may cause. Corruption is not among it: nothing is ever corrupted."""


@dataclass
class Model:
    """What is known of one partition."""

    settings: LogSettings
    sent: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    """Value and timestamp by offset."""
    flushed_offset: int = 0
    """All below it must survive everything."""
    start: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    epoch: int = 0

    def cut(self, next_offset: int) -> None:
        self.sent = {offset: sent for offset, sent in self.sent.items() if offset < next_offset}
        self.flushed_offset = min(self.flushed_offset, next_offset)
        # Producers start over under new ids: which of their batches are there is not what a storm is about.
        self.sequences = {}


class Storm:
    """One shard's store in the storm."""

    def __init__(self, seed: int, *, partitions: int = 3) -> None:
        self.rng = random.Random(seed)
        self.disk = FakeDisk(seed, delays=True)
        self.disk.make_dir(ROOT)
        self.now_ms = 1_000_000
        self.models: dict[TopicPartition, Model] = {}
        self.next_producer = 1
        self.checked = 0
        """Records that were compared with what was sent."""
        self.unanswered = 0
        self.store = self._new_store()
        for number in range(partitions):
            self._open(TopicPartition("t", number))

    # -- steps ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One cycle, and perhaps something rare."""
        rng = self.rng
        self.now_ms += rng.randint(0, 40)
        for _ in range(rng.randint(0, 4)):
            self._append(self._any())
        if rng.random() < 0.4:
            self._read(self._any())
        if rng.random() < 0.1:
            self._find_time(self._any())
        self._run()
        rare: list[tuple[float, Callable[[TopicPartition], None]]] = [
            (0.02, lambda _: self.store.checkpoint()),
            (0.6, lambda _: self.store.upkeep.check_now()),
            (0.03, self._move_start),
            (0.01, self._truncate),
            (0.01, self._reopen),
            (0.01, self._remove),
            (0.02, self._reconfigure),
            (0.03, lambda _: self._evict()),
            (0.02, lambda _: self._fail_something()),
            (0.01, lambda _: self._fill_disk()),
            (0.01, lambda _: self._restart_cleanly()),
            (0.01, lambda _: self._die()),
            (0.01, lambda _: self._lose_power()),
        ]
        for chance, action in rare:
            if rng.random() < chance:
                action(self._any())

    def finish(self) -> None:
        """End the storm: everything is there, everything is given back."""
        self.disk.faults = Faults()
        self.now_ms += 10_000
        for name in list(self.models):
            self._mend(name)
        self._note(self.store.drain(now_ms=self.now_ms))
        for name in self.models:
            self._check_all(name)
        while self.unanswered:
            self._run()
        self._note_progress(self.store.close(now_ms=self.now_ms))
        assert self.disk.open_paths == [], "every file is closed"
        arena = self.store._context.arena
        assert arena.free_bytes == arena.total_bytes, "all memory is given back"
        self._restart(damage=0.0)
        assert all(self.store.reports[name].clean for name in self.models), "a clean stop needs no scan"

    # -- what happens --------------------------------------------------------------------------------------

    def _append(self, name: TopicPartition) -> None:
        rng, model = self.rng, self.models[name]
        size = rng.choice([5, 100, 3_000, 4_096, 30_000, 200 * KIB])
        values = [rng.randbytes(8) + bytes(size) for _ in range(rng.randint(1, 4))]
        stamp = self.now_ms + rng.randint(-500, 500)
        producer = None
        if rng.random() < 0.5:
            if not model.sequences or rng.random() < 0.1:
                model.sequences[self.next_producer] = 0
                self.next_producer += 1
            producer = rng.choice(list(model.sequences))
        if rng.random() < 0.1:
            model.epoch += 1
        data = batch_of(
            *values,
            timestamp=stamp,
            producer=None if producer is None else (producer, 0, model.sequences[producer]),
        )
        try:
            appended = self.store.append(
                name,
                memoryview(data),
                batch_infos(check(data)),
                now_ms=self.now_ms,
                leader_epoch=model.epoch,
            )
        except (PartitionBusy, PartitionFenced, DiskFull):
            return
        assert not appended.repeated
        if producer is not None:
            model.sequences[producer] += len(values)
        for number, value in enumerate(values):
            assert appended.base_offset + number not in model.sent, "no offset is given twice"
            model.sent[appended.base_offset + number] = (value, stamp)

    def _read(self, name: TopicPartition) -> None:
        log = self.store.logs.get(name)
        if log is None:
            return
        model, offset = self.models[name], self.rng.randint(self.models[name].start, log.readable_offset)
        self.unanswered += 1

        def done(slices) -> None:
            self.unanswered -= 1
            with slices:
                self._compare(model, slices, offset)

        self.store.read(name, offset, self.rng.choice([1, 5_000, 300_000]), done=done, failed=self._failed)

    def _find_time(self, name: TopicPartition) -> None:
        log = self.store.logs.get(name)
        if log is None:
            return
        model, wanted = self.models[name], self.now_ms + self.rng.randint(-3_000, 600)
        start, readable = model.start, log.readable_offset
        self.unanswered += 1

        def done(found) -> None:
            self.unanswered -= 1
            first = next((o for o in range(start, readable) if model.sent[o][1] >= wanted), None)
            if found is not None:
                assert model.sent[found.offset][1] == found.timestamp >= wanted
            if model.start == start == log.log_start_offset and first is not None:
                assert found is not None and found.offset == first

        self.store.search(name, lambda reader: reader.find_time(wanted), done=done, failed=self._failed)

    def _failed(self, error: RinglogError | OSError) -> None:
        self.unanswered -= 1
        assert isinstance(error, _ALLOWED), error

    def _run(self) -> None:
        self._note(self.store.run(now_ms=self.now_ms))
        for name, log in self.store.logs.items():
            self.models[name].start = max(self.models[name].start, log.log_start_offset)  # retention moves it

    def _note(self, events) -> None:
        for name in self._note_progress(events):
            self._mend(name)

    def _note_progress(self, events) -> list[TopicPartition]:
        """Remember what was acknowledged; returns who was fenced."""
        fenced: dict[TopicPartition, None] = {}
        for event in events:
            assert not isinstance(event, Quarantined), event.error
            if isinstance(event, Fenced):
                fenced[event.log.name] = None
            elif isinstance(event, Progress) and event.durability >= Durability.FLUSHED:
                model = self.models[event.log.name]
                if self.store.logs.get(event.log.name) is event.log:
                    model.flushed_offset = max(model.flushed_offset, event.offset)
        return list(fenced)

    def _mend(self, name: TopicPartition) -> None:
        """Reopen a partition that is fenced, or could not be opened, as an operator does: until it works."""
        log = self.store.logs.get(name)
        if log is not None and log.status is LogStatus.OPEN:
            return
        for attempt in range(20):
            if attempt > 10:
                self.disk.faults = Faults()
            try:
                if name in self.store._settings:
                    self.store.reopen(name, now_ms=self.now_ms)
                else:
                    self.store.open(name, self.models[name].settings, now_ms=self.now_ms)
            except OSError:
                continue
            self._adopt(name)
            return
        raise AssertionError(f"{name} cannot be opened again")

    def _move_start(self, name: TopicPartition) -> None:
        log = self.store.logs.get(name)
        if log is not None and log.status is LogStatus.OPEN:
            low = self.rng.choice([log.log_start_offset, log.log_start_offset, log.readable_offset])
            offset = self.rng.randint(low, log.readable_offset)
            self.store.move_start(name, offset)
            self.models[name].start = offset

    def _truncate(self, name: TopicPartition) -> None:
        log = self.store.logs.get(name)
        if log is None or log.status is not LogStatus.OPEN:
            return
        offset = self.rng.randint(log.log_start_offset, log.next_offset)
        model = self.models[name]
        floor = min(model.flushed_offset, offset)
        try:
            self.store.truncate(name, offset, now_ms=self.now_ms)
        except OffsetOutOfRange:
            return
        except (OSError, PartitionFenced, DiskFull):
            # It may be cut, or not. What was told of it before the cut does not hold after it.
            fenced = self._note_progress(self.store.run(now_ms=self.now_ms))
            model.flushed_offset = min(model.flushed_offset, _batch_start(floor))
            for each in dict.fromkeys([name, *fenced]):
                self._mend(each)
            return
        assert self.store.logs[name].next_offset <= offset
        model.flushed_offset = min(model.flushed_offset, _batch_start(offset))
        self._adopt(name)

    def _reopen(self, name: TopicPartition) -> None:
        if name in self.store.logs:
            try:
                self.store.reopen(name, now_ms=self.now_ms)
            except OSError:
                self._mend(name)
            else:
                self._adopt(name)

    def _remove(self, name: TopicPartition) -> None:
        self.store.remove(name)
        self.models[name] = Model(self.models[name].settings)
        if self.rng.random() < 0.5:
            for _ in range(self.rng.randint(0, 5)):
                self._run()
        self._mend(name)

    def _reconfigure(self, name: TopicPartition) -> None:
        settings = self._settings()
        self.models[name].settings = settings
        self.store.reconfigure(name, settings, now_ms=self.now_ms)
        self._run()

    def _evict(self) -> None:
        while self.store._tail.evict_oldest():
            pass

    def _fail_something(self) -> None:
        at = len(self.disk.calls) + self.rng.randint(0, 30)
        self.disk.faults.fail_call(at, errno=self.rng.choice([errno.EIO, errno.ENOSPC]))

    def _fill_disk(self) -> None:
        """No room for a while; readers go on, and appends too when there is room again."""
        self.disk.faults.space_bytes = self.disk.used_bytes + self.rng.randint(0, 300 * KIB)
        for _ in range(self.rng.randint(1, 15)):
            self.now_ms += 10
            self._append(self._any())
            self._read(self._any())
            self._note_progress(self.store.run(now_ms=self.now_ms))
        self.disk.faults.space_bytes = None
        for name in list(self.models):
            self._mend(name)

    def _restart_cleanly(self) -> None:
        try:
            self._note_progress(self.store.close(now_ms=self.now_ms))
        except (OSError, RinglogError) as error:
            assert isinstance(error, _ALLOWED), error
        self._restart()

    def _die(self) -> None:
        """The process dies; what it submitted is still carried out, and nothing of it is flushed by that."""
        self.disk = self.disk.after_death(self.rng.getrandbits(32))
        self.unanswered = 0
        self._restart()

    def _lose_power(self) -> None:
        survivor = self.disk.crash(self.rng)
        self.disk.lose_power()
        survivor.delays = True
        self.disk = survivor
        self.unanswered = 0
        for model in self.models.values():
            model.start = 0  # what was not made durable of it is taken back
        self._restart()

    # -- opening and checking --------------------------------------------------------------------------------

    def _restart(self, *, damage: float = 0.3) -> None:
        self.store = self._new_store()
        sweep_deleted(self.disk, ROOT)
        if self.rng.random() < damage:
            self._damage(self._any())
        for name in list(self.models):
            self._mend(name)

    def _damage(self, name: TopicPartition) -> None:
        """Lose, cut or spoil a derived file, or the state: that costs work, never data."""
        rng, path = self.rng, f"{ROOT}/{name}"
        derived = (".index", ".timeindex", ".snapshot", "partition.point", "partition.state")
        found = (
            [file for file, _ in self.disk.list_dir(path) if file.endswith(derived)]
            if self.disk.exists(path)
            else []
        )
        if not found:
            return
        file = f"{path}/{rng.choice(found)}"
        content = bytearray(self.disk.content(file))
        self.models[name].start = 0  # only the state knows it
        if rng.random() < 0.3 or not content:
            self.disk.remove(file)
        else:
            if rng.random() < 0.5:
                del content[rng.randrange(len(content)) :]
            else:
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            self.disk.put(file, bytes(content))

    def _new_store(self) -> LogStore:
        return LogStore(self.disk, ROOT, memory=aligned_memory(6 * MIB), compaction_bytes_per_s=None)

    def _open(self, name: TopicPartition) -> None:
        settings = self._settings()
        self.models[name] = Model(settings)
        self.store.open(name, settings, now_ms=self.now_ms)

    def _settings(self) -> LogSettings:
        rng = self.rng
        return LogSettings(
            segment_bytes=1 * MIB,
            segment_ms=rng.choice([100, 1_000, 10**9]),
            batch_bytes_max=rng.choice([1 * MIB, 3 * MIB]),
            flush=FlushPolicy.parse(rng.choice(["ack", "ack", "interval:30", "os"])),
            retention_ms=rng.choice([None, None, 1_500]),
            retention_bytes=rng.choice([None, None, 3 * MIB]),
            # Records have no keys here, so none is superseded: segments are rewritten, joined and swapped all the same.
            compact=rng.random() < 0.5,
            dirty_ratio_min=0.0,
        )

    def _adopt(self, name: TopicPartition) -> None:
        """Take what an opening found for true, if nothing is lost that must not be."""
        log, model = self.store.logs[name], self.models[name]
        assert not any(segment.quarantined for segment in log.segments), self.store.reports[name]
        assert log.next_offset >= model.flushed_offset, (name, self.store.reports[name], model.flushed_offset)
        assert log.log_start_offset <= log.next_offset
        model.start = log.log_start_offset
        model.cut(log.next_offset)
        model.flushed_offset = log.next_offset
        model.epoch = max(model.epoch, log.epochs.latest)
        if self.rng.random() < 0.3:
            self._check_all(name)

    def _check_all(self, name: TopicPartition) -> None:
        log, model = self.store.logs[name], self.models[name]
        at = log.log_start_offset
        while at < log.readable_offset:
            try:
                slices = self.store.read_now(name, at, 100_000)
            except (OSError, PartitionBusy):
                return  # a call that was to fail did
            with slices:
                self._compare(model, slices, at)
                assert slices.next_offset > at
                at = slices.next_offset

    def _compare(self, model: Model, slices, offset: int) -> None:
        expected = offset
        for record in decode(slices.tobytes()):
            if record.offset >= offset:
                assert record.offset == expected, "offsets are dense"
                assert record.value == model.sent[record.offset][0]
                expected += 1
                self.checked += 1
        assert expected == slices.next_offset

    def _any(self) -> TopicPartition:
        return self.rng.choice(list(self.models))


def _batch_start(offset: int) -> int:
    """Where the batch of an offset may begin: batches go as a whole, and have at most four records here."""
    return max(offset - 3, 0)
