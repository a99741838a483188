"""All partition logs of one shard: one disk, one memory budget, one submission per cycle.

A cycle of the owner is: append what came in, then `run()`. All writes that are due go to the device in one
submission, completions are handed out, and what became durable comes back as events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import msgspec

from ringlog.disk.api import Disk, WatchingDisk
from ringlog.disk.memory import aligned
from ringlog.errors import RinglogError, check
from ringlog.limits import COMPACTION_BYTES_PER_S, INDEX_BYTES_PER_SHARD, TAIL_BYTES_PER_SHARD
from ringlog.log.arena import Arena
from ringlog.log.batch import BatchInfo
from ringlog.log.bounds import ShardBounds
from ringlog.log.checkpoints import Checkpoints
from ringlog.log.claims import Claims, Lock
from ringlog.log.context import ShardContext
from ringlog.log.cut_ahead import ProducersAhead
from ringlog.log.disk_space import DiskSpace
from ringlog.log.events import Appended, Event, disk_error, not_open
from ringlog.log.flush_schedule import FlushSchedule
from ringlog.log.housekeeping import Housekeeper
from ringlog.log.index_cache import IndexCache
from ringlog.log.jobs import Dispatcher, Job, run_now
from ringlog.log.names import LOG, offset_name, partition_dir
from ringlog.log.opening import Opened, Opener, Wanted
from ringlog.log.owner import Owner
from ringlog.log.partition import LogStatus, PartitionLog
from ringlog.log.reading import Reader, Slices, TimedOffset
from ringlog.log.ready import ReadyLogs
from ringlog.log.recent_tail import ShardTail
from ringlog.log.recovery import RecoveryReport
from ringlog.log.removal import SET_ASIDE_TOGETHER, Leaving, Removals
from ringlog.log.retention import plan_retention
from ringlog.log.settings import DEFAULT_SETTINGS, LogSettings
from ringlog.log.truncation import cut
from ringlog.log.upkeep import Upkeep
from ringlog.model import TopicPartition

_CLOCK_MS = 20
"""Between two looks at the clock for what is due by it alone."""
_AGE_CHECK_MS = 1_000
_EXPIRY_CHECK_MS = 60_000


class LogStore:
    """The logs of one shard, by partition."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        *,
        memory: memoryview | None = None,
        compaction_bytes_per_s: int | None = COMPACTION_BYTES_PER_S,
        names_lock: Lock = nullcontext,
        bounds: ShardBounds = ShardBounds(),  # noqa: B008 (it is frozen)
    ) -> None:
        """`memory`: an aligned region for buffers; by default, private memory of the usual size.
        `compaction_bytes_per_s`: what compaction may read and write; None: all that it can.
        `names_lock`: held while directories get or lose an owner, by all shards of a node."""
        self.disk = disk
        self.root = root
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.reports: dict[TopicPartition, RecoveryReport] = {}
        self._settings: dict[TopicPartition, LogSettings] = {}
        """Of all that were opened since the last clean stop, also of those that could not be opened again."""
        self._housekeepers: dict[TopicPartition, Housekeeper] = {}
        self._readers: dict[TopicPartition, Reader] = {}
        self._dispatcher = Dispatcher(disk)
        self._removals = Removals(disk, self._dispatcher, self._forget)
        self.claims = Claims(disk, root, self._removals, names_lock)
        self.upkeep = Upkeep(self._dispatcher, compaction_bytes_per_s)
        self._ahead = ProducersAhead(self._dispatcher)
        self._events: list[Event] = []
        self._tail = ShardTail()
        self._ready = ReadyLogs(disk, bounds.disk_depth)
        self._wanting: list[Housekeeper] = []
        """Those whose checkpoint waits for a flush."""
        self._sweeping: list[Housekeeper] = []
        """Those with files to delete or to rename when no read uses them."""
        self.flushes = FlushSchedule()
        self._checkpoints = Checkpoints(self._housekeepers)
        self.space = DiskSpace(disk, root, bounds.preallocate_bytes_max)
        self._clock_ms = 0
        self._age_checked_ms = 0
        self._expiry_checked_ms = 0
        self._context = ShardContext(
            disk=disk,
            arena=Arena(memory if memory is not None else aligned(TAIL_BYTES_PER_SHARD)),
            dispatcher=self._dispatcher,
            events=self._events,
            make_room=self._tail.evict_oldest,
            keep_tail=self._tail.keep,
            mark_ready=self._ready.mark,
            space=self.space,
            indexes=IndexCache(INDEX_BYTES_PER_SHARD),
            group_bytes=bounds.group_bytes,
        )
        self._opener = Opener(self.claims, self._context, self._wanting.append, self._sweeping.append)

    # -- opening and closing ---------------------------------------------------------------------------------

    def open(
        self,
        name: TopicPartition,
        settings: LogSettings = DEFAULT_SETTINGS,
        *,
        now_ms: int,
        owner: Owner | None = None,
    ) -> PartitionLog:
        """Open a partition, or make it; recovers it first when it was not closed cleanly. With an `owner`, what another
        partition of that name has left is not taken for its own."""
        found = self.open_together([(name, settings, owner)], now_ms=now_ms)[0]
        if isinstance(found, Exception):
            raise found
        return found

    def open_together(
        self, wanted: Sequence[tuple[TopicPartition, LogSettings, Owner | None]], *, now_ms: int
    ) -> list[PartitionLog | OSError | RinglogError]:
        """As `open`, of many: each log, or why it could not be opened."""
        failures: dict[TopicPartition, OSError | RinglogError] = {}
        some: dict[TopicPartition, Wanted] = {}
        for name, settings, owner in wanted:
            check(name not in self.logs, "a partition is opened once")
            path = partition_dir(self.root, name)
            try:
                self._removals.finish(name, path)
            except (OSError, RinglogError) as error:
                failures[name] = error  # what a deleted one has left there cannot be set aside
                continue
            some[name] = Wanted(name, path, settings, owner, was_open=name in self._settings)
            self._settings[name] = settings
        found = dict(zip(some, self._opener.open(list(some.values()), now_ms), strict=True))
        return [failures[name] if name in failures else self._keep(found[name]) for name, _, _ in wanted]

    def _keep(self, found: Opened | OSError | RinglogError) -> PartitionLog | OSError | RinglogError:
        if isinstance(found, Exception):
            return found
        log, housekeeper, report = found
        self.logs[log.name] = log
        self.reports[log.name] = report
        self._housekeepers[log.name] = housekeeper
        self._readers[log.name] = Reader(log, housekeeper.quarantine)
        return log

    def has_files(self, name: TopicPartition) -> bool:
        """Whether a partition of that name was here before: to open it may take a scan."""
        return self.disk.exists(partition_dir(self.root, name))

    def reopen(self, name: TopicPartition, *, now_ms: int) -> PartitionLog:
        """Open a fenced partition anew from what is on disk. When that fails it is closed, and can be tried again."""
        if name in self.logs:
            self._leave(name)
        return self.open(name, self._settings[name], now_ms=now_ms)

    def prepare_cut(self, name: TopicPartition, offset: int, *, now_ms: int) -> bool:
        """Read, in the background of run(), what must be known of the producers of a log that is to be truncated to an
        offset. True when that is done, or would not take long. Until then, to be asked again."""
        housekeeper = self._housekeepers.get(name)
        return housekeeper is None or self._ahead.is_made(housekeeper, self._readers[name], offset, now_ms)

    def truncate(self, name: TopicPartition, offset: int, *, now_ms: int) -> PartitionLog:
        """Remove the records from an offset on (whole batches; what is cut is saved as `*.cut`), and open the rest.

        Waits for all that this log has under way, and for no other; what happened meanwhile is among the events of the
        next run()."""
        self._events[:0] = self._still(name, now_ms)
        cut(self.logs[name], self._housekeepers[name], offset, now_ms, self._opener.scratch)
        return self.reopen(name, now_ms=now_ms)

    def begin_at(self, name: TopicPartition, offset: int, owner: Owner, *, now_ms: int) -> PartitionLog:
        """Give up all records of a log, and open it anew, empty, beginning at an offset. After a crash in between it is
        empty, and begins at 0."""
        settings, path = self._settings[name], partition_dir(self.root, name)
        self.remove(name)
        self._removals.finish(name, path)
        for failure in self.claims.claim({path: owner}).values():
            raise failure
        self.disk.close(self.disk.open(f"{path}/{offset_name(offset, LOG)}", write=True, create=True))
        return self.open(name, settings, now_ms=now_ms)

    def reconfigure(self, name: TopicPartition, settings: LogSettings, *, now_ms: int) -> None:
        """Change the settings of a log, for all appends from now on; of one that is not open, for its reopening.

        A change of what a crash can leave behind (the flush policy, larger batches with flush=ack, or gaps) first waits
        until all that the log received is flushed, and then for its state on disk to say so. What happened meanwhile is
        among the events of the next run(). Should that fail the log is fenced, and gets the settings when it is
        reopened."""
        if name in self._settings:
            # Until the recovery point lies behind its gaps, a reopening takes those that it was written with for good.
            gaps = settings.gaps_at_append or self._settings[name].gaps_at_append
            self._settings[name] = msgspec.structs.replace(settings, gaps_at_append=gaps)
        log = self.logs.get(name)
        if log is None or log.status is not LogStatus.OPEN:
            return
        if (
            settings.flush.on_ack != log.settings.flush.on_ack
            or settings.reach_bytes != log.settings.reach_bytes
            or settings.gaps_at_append != log.settings.gaps_at_append
        ):
            self._events[:0] = self._settle([name], now_ms)
            if log.status is not LogStatus.OPEN:
                return
            log.settings = settings
            try:
                run_now(self.disk, self._housekeepers[name].save_point())
            except OSError as error:
                log.fence(disk_error(name, "save settings", error))
                return
        log.settings = self._settings[name] = settings
        if settings.flush.interval_ms is not None and log.flushed_offset < log.next_offset:
            self.flushes.plan(name, now_ms + settings.flush.interval_ms)

    def drain(self, *, now_ms: int) -> list[Event]:
        """Run until all that was received is written and flushed, and all chores are done."""
        events = self._settle(list(self.logs), now_ms)
        self._removals.let_go()  # all that are quiet: nothing is under way for them that could be waited for
        while self._removals.waiting:
            self._dispatcher.deliver(None)
            self._removals.let_go()
        return events

    def _settle(self, names: Sequence[TopicPartition], now_ms: int) -> list[Event]:
        """Run until some logs have nothing left to write, flush or save. Others go on meanwhile."""
        events: list[Event] = []
        while True:
            for log in map(self.logs.__getitem__, names):
                if log.status is LogStatus.OPEN and log.flushed_offset < log.written_offset:
                    log.flush()
            events += self.run(now_ms=now_ms, wait_s=0.0)
            if all(self._settled(name) for name in names):
                return events
            # As many completions as logs are looked at, so that each costs a look or two, however they trickle in.
            delivered = 0
            while self.disk.in_flight and delivered < len(names):
                delivered += self._dispatcher.deliver(None)

    def _still(self, name: TopicPartition, now_ms: int) -> list[Event]:
        """Run until a log is settled, and nobody reads or compacts it. Others go on meanwhile."""
        reader, events = self._reader(name), list[Event]()
        log = self.logs[name]
        while True:
            events += self._settle([name], now_ms)
            self.upkeep.cancel(log)
            self._ahead.cancel(log)
            if reader.quiet and not self.upkeep.is_busy_with(log):
                return events
            self._dispatcher.deliver(None)

    def _settled(self, name: TopicPartition) -> bool:
        log, housekeeper = self.logs[name], self._housekeepers[name]
        if log.status is not LogStatus.OPEN:
            return log.quiet and housekeeper.quiet
        return log.idle and housekeeper.resting and log.flushed_offset == log.next_offset

    def close(self, *, now_ms: int) -> list[Event]:
        """Stop cleanly: every file is truncated to its content, and the next open needs no scan."""
        for log in self.logs.values():
            self._ahead.cancel(log)
        events = self.drain(now_ms=now_ms)
        failures: list[RinglogError | OSError] = []
        for housekeeper in self._housekeepers.values():
            if housekeeper.log.status is LogStatus.OPEN:
                self._dispatcher.spawn(housekeeper.close(), lambda _: None, failures.append)
        while self.disk.in_flight:
            self._dispatcher.deliver(None)
        for name in list(self.logs):
            self._leave(name)
        self._settings.clear()
        if failures:
            raise failures[0]
        return events

    def _leave(self, name: TopicPartition) -> None:
        leaving = self._stop(name)
        while not leaving.quiet:
            self._dispatcher.deliver(None)
        self._forget(leaving.log)

    def _stop(self, name: TopicPartition) -> Leaving:
        """Take a log out of service. It is to be forgotten when it is quiet."""
        log = self.logs.pop(name)
        self.upkeep.cancel(log)
        self._ahead.cancel(log)
        if log.status is LogStatus.OPEN:
            log.stop()
        self._ready.forget(name)
        self.flushes.forget(name)
        del self.reports[name]
        return Leaving(log, self._housekeepers.pop(name), self._readers.pop(name), self.upkeep)

    def _forget(self, log: PartitionLog) -> None:
        self._tail.leave(log)
        log.forget()

    def remove(
        self,
        name: TopicPartition,
        *,
        done: Callable[[], None] = lambda: None,
        failed: Callable[[RinglogError | OSError], None] = lambda error: None,
    ) -> None:
        """Close a partition, whether it is open or not, and delete its directory, all in the background of run().

        From now on it takes no appends and no reads; what was not acknowledged never will be. One of the two is called:
        `done` when it cannot come back after a crash. Its files are deleted after that; what a crash leaves of
        them is for `ringlog.log.removal.sweep_deleted`. It may be opened anew, empty, at any time."""
        self._settings.pop(name, None)
        leaving = self._stop(name) if name in self.logs else None
        self._removals.begin(name, partition_dir(self.root, name), leaving, done, failed)

    # -- a cycle -----------------------------------------------------------------------------------------------

    def append(
        self,
        name: TopicPartition,
        data: memoryview,
        batches: Sequence[BatchInfo],
        *,
        now_ms: int,
        leader_epoch: int = 0,
    ) -> Appended:
        """Take batches for a partition; see PartitionLog.append. They are written at the next run()."""
        log = self.admit(name, data.nbytes)
        appended = log.append(data, batches, now_ms=now_ms, leader_epoch=leader_epoch)
        self.note_appended(log, data.nbytes, now_ms)
        return appended

    def admit(self, name: TopicPartition, nbytes: int) -> PartitionLog:
        """The log that is to take so many bytes, if the shard and its disk have room for them."""
        self._checkpoints.require_room(nbytes)
        self.space.admit(name, nbytes)
        log = self.logs.get(name)
        if log is None:
            raise not_open(name)
        return log

    def note_appended(self, log: PartitionLog, nbytes: int, now_ms: int) -> None:
        """A log has taken bytes: plan what follows from that."""
        self._checkpoints.appended(nbytes)
        interval_ms = log.settings.flush.interval_ms
        if interval_ms is not None:
            self.flushes.plan(log.name, now_ms + interval_ms)

    def run(self, *, now_ms: int, wait_s: float | None = 0.0) -> list[Event]:
        """One cycle: hand out completions, queue what is due, submit it all at once. Waits for completions up to
        `wait_s` when there is nothing else to do. Returns what happened, in order."""
        self._checkpoints.begin_cycle()
        self._keep_house(now_ms)  # before the wait: what comes after it is waited for
        if self._ready.logs:
            self._ready.pump(now_ms)
        self.disk.submit()
        if not self._context.arena.is_warm:
            self._context.arena.warm_up()
        if self._dispatcher.deliver(wait_s):
            if self._ready.logs:
                self._ready.pump(now_ms)
            self.disk.submit()
        return self._take_events()

    def push(self, now_ms: int) -> list[Event]:
        """Put what was appended on its way to the device, ahead of the next run(). Returns what happened."""
        if not self._ready.logs:
            return []
        self._ready.pump(now_ms)
        self.disk.submit()
        return self._take_events()

    def _take_events(self) -> list[Event]:
        events, self._events[:] = self._events[:], []
        return events

    def watch(self, fd: int, then: Callable[[int], None]) -> None:
        """Let run() wait for a descriptor too, on a disk that can: `then` is called whenever it is readable."""
        assert isinstance(self.disk, WatchingDisk)
        self._dispatcher.whenever(self.disk.watch(fd), then)

    def _keep_house(self, now_ms: int) -> None:
        """What is due by the clock or by bytes. Costs nothing for partitions where nothing happens."""
        if self.flushes:
            self.flushes.flush_due(self.logs, now_ms)
        if self._removals.waiting:
            self._removals.let_go(SET_ASIDE_TOGETHER)
        if self._wanting:
            self._wanting[:] = [housekeeper for housekeeper in self._wanting if not housekeeper.tick()]
        if self._sweeping:
            sweeping = self._sweeping[:]
            self._sweeping.clear()
            self._sweeping += [housekeeper for housekeeper in sweeping if not housekeeper.sweep()]
        if self._checkpoints.due:
            self._checkpoints.move()
        if abs(now_ms - self._clock_ms) >= _CLOCK_MS or not self.upkeep.is_idle:
            self._clock_ms = now_ms
            self._keep_time(now_ms)

    def _keep_time(self, now_ms: int) -> None:
        """What is due by the clock alone, each at its own interval."""
        self.space.tick(now_ms)
        if abs(now_ms - self._age_checked_ms) >= _AGE_CHECK_MS:
            self._age_checked_ms = now_ms
            for log in self.logs.values():
                log.roll_if_due(now_ms)
            self._retain(now_ms)
        self.upkeep.tick(now_ms, self._housekeepers.values())
        if abs(now_ms - self._expiry_checked_ms) >= _EXPIRY_CHECK_MS:
            self._expiry_checked_ms = now_ms
            for log in self.logs.values():
                log.producers.expire(now_ms)

    def _retain(self, now_ms: int) -> None:
        """Let the logs begin where retention wants it, each by its settings."""
        for name, log in self.logs.items():
            if log.status is not LogStatus.OPEN:
                continue
            plan = plan_retention(log.segments, log.log_start_offset, log.settings, now_ms)
            if log.log_start_offset < plan.start_offset <= log.readable_offset:  # what is not committed stays
                self._housekeepers[name].move_start(plan.start_offset)
            if plan.roll or log.is_spent:
                log.roll(now_ms)

    def checkpoint(self) -> None:
        """Move every recovery point up to what is flushed, in the background of the next run()s."""
        for housekeeper in self._housekeepers.values():
            housekeeper.want_checkpoint()

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        """Of the region for buffers, in all: what is not being written is given up when there is need."""
        return self._context.arena.total_bytes

    @property
    def memory_free_bytes(self) -> int:
        """Of the region for buffers."""
        return self._context.arena.free_bytes

    def read_tail(
        self, name: TopicPartition, offset: int, bytes_max: int, *, ahead: bool = False
    ) -> Slices | None:
        """Batches from memory, at once; None when they must be read from disk. `ahead` as of `Reader.read_tail`."""
        return self._reader(name).read_tail(offset, bytes_max, ahead=ahead)

    def _reader(self, name: TopicPartition) -> Reader:
        reader = self._readers.get(name)
        if reader is None:
            raise not_open(name)
        return reader

    def read(
        self,
        name: TopicPartition,
        offset: int,
        bytes_max: int,
        *,
        done: Callable[[Slices], None],
        failed: Callable[[RinglogError | OSError], None],
        ahead: bool = False,
    ) -> None:
        """Read from memory or disk in the background of run(); exactly one of the two is called, perhaps at once."""
        if name not in self._readers:
            failed(not_open(name))
        else:
            self._dispatcher.spawn(self._readers[name].read(offset, bytes_max, ahead=ahead), done, failed)

    def read_now(self, name: TopicPartition, offset: int, bytes_max: int) -> Slices:
        """Read and wait for it."""
        return run_now(self.disk, self._reader(name).read(offset, bytes_max))

    def search(
        self,
        name: TopicPartition,
        question: Callable[[Reader], Job[Any]],
        *,
        done: Callable[[Any], None],
        failed: Callable[[RinglogError | OSError], None],
    ) -> None:
        """Ask a log's reader in the background of run(); exactly one of the two is called, perhaps at once."""
        if name not in self._readers:
            failed(not_open(name))
        else:
            self._dispatcher.spawn(question(self._readers[name]), done, failed)

    def find_time_now(self, name: TopicPartition, timestamp: int) -> TimedOffset | None:
        """The first record at or after a time; waits for it."""
        return run_now(self.disk, self._reader(name).find_time(timestamp))

    def move_start(self, name: TopicPartition, offset: int) -> None:
        """Let a log begin at an offset from now on. An event tells when it does so after a power loss, too."""
        self._reader(name)
        self._housekeepers[name].move_start(offset)
