"""The partitions that a shard serves: follows the metadata, opens, reconfigures, reopens and removes logs.

Opening is work (files are made, tails are scanned), so it is done a few milliseconds at a time between cycles;
until a partition is open, requests for it are refused, retriably. So is giving open logs other settings (their state is
flushed); until then they are served by the old ones.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from ringlog.controller.image import MetadataImage, TopicState
from ringlog.controller.records import Partition
from ringlog.controller.topic_config import COMPRESSIONS, settings_of
from ringlog.coordination.catalogue import INTERNAL_PREFIX
from ringlog.errors import (
    CorruptSegment,
    DiskFull,
    NotLeader,
    PartitionBusy,
    RinglogError,
    StaleMetadata,
)
from ringlog.limits import MIB
from ringlog.log.ages import history
from ringlog.log.disk_space import floor_of, reserve_of, resume_of
from ringlog.log.events import disk_error
from ringlog.log.owner import Owner
from ringlog.log.partition import LogStatus, PartitionLog
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from ringlog.replication.replica import Replica
from ringlog.replication.view import PartitionView
from ringlog.ring.stats import Stats
from ringlog.shard.acks import AckQueue

WORK_SLICE_S = 0.02
"""How long logs are opened or reconfigured before others are served."""
OPEN_TOGETHER = 64
"""Partitions that are made at a time: enough for a disk that flushes them at once, few enough for others to wait."""
REOPEN_MS = 500
"""Between two attempts to open a partition that a disk error closed."""
REOPEN_ROOM_BYTES = 16 * MIB
"""Free space that a partition waits for, after a full disk, before it takes appends again; see `reopen_room`."""

_NEVER_MS = 2**63 - 1

_log = logging.getLogger(__name__)


class HostedPartition:
    """One open partition, and all that the shard knows of it beside its log."""

    __slots__ = ("acks", "leader_acks", "log", "name", "partition", "replica", "watchers")

    def __init__(self, partition: int, log: PartitionLog, replica: Replica | None = None) -> None:
        self.partition = partition
        self.name = log.name
        self.log = log
        self.replica = replica
        """None: nobody else has this partition, and what is held here is committed."""
        self.acks = AckQueue(partition)
        """Of records that wait until readers may see them."""
        self.leader_acks = AckQueue(partition)
        """Of records of a replicated partition that wait for the leader alone."""
        self.watchers: set[object] = set()
        """Fetch sessions that want to know of new records."""

    @property
    def leader_epoch(self) -> int:
        """Under which this node appends. 0 where nobody else could lead."""
        if self.replica is None:
            return 0
        return self.replica.must_lead().view.leader_epoch


def reopen_room(name: TopicPartition, disk_bytes: int) -> int:
    """Free space that a partition waits for before it is reopened. On a small disk, no more than others wait for before
    they take records: it may never have more again, since retention passes over a log that is not open.

    >>> [reopen_room(TopicPartition("t", 0), disk_mib * MIB) // MIB for disk_mib in (64, 128, 1_000_000)]
    [3, 7, 16]
    """
    reserve_bytes = reserve_of(disk_bytes)
    # What is kept in reserve is for the internal ones.
    is_internal = name.topic.startswith(INTERNAL_PREFIX)
    return min(REOPEN_ROOM_BYTES, floor_of(reserve_bytes) if is_internal else resume_of(reserve_bytes))


def read_refusal(hosted: HostedPartition, error: RinglogError | OSError) -> RinglogError:
    """What a reader is told when a read failed: of a hole that others do not have, to go to them. This replica is about
    to leave them (`Replica.renewal`)."""
    typed = disk_error(hosted.name, "read", error)
    if isinstance(typed, CorruptSegment) and hosted.replica is not None and hosted.replica.is_spared:
        return NotLeader(
            f"{hosted.name}: this node lacks records that other replicas have. Fetch metadata, then retry"
        )
    return typed


def log_settings(full: Mapping[str, str], *, replicated: bool = False) -> LogSettings:
    """The log's settings for all settings of a topic.

    >>> log_settings(settings_of("t", {"flush": "os"})).flush.on_ack
    False
    """
    policy = full["cleanup.policy"].split(",")
    deletes = "delete" in policy
    lag_max_ms = int(full["max.compaction.lag.ms"])
    return LogSettings(
        segment_bytes=int(full["segment.bytes"]),
        segment_ms=int(full["segment.ms"]),
        batch_bytes_max=int(full["max.message.bytes"]),
        flush=FlushPolicy.parse(full["flush"]),
        append_time=full["message.timestamp.type"] == "LogAppendTime",
        retention_ms=_bound(full["retention.ms"]) if deletes else None,
        retention_bytes=_bound(full["retention.bytes"]) if deletes else None,
        compact="compact" in policy,
        gaps_at_append=replicated and "compact" in policy,
        delete_retention_ms=int(full["delete.retention.ms"]),
        dirty_ratio_min=float(full["min.cleanable.dirty.ratio"]),
        compaction_lag_min_ms=int(full["min.compaction.lag.ms"]),
        compaction_lag_max_ms=lag_max_ms if lag_max_ms < _NEVER_MS else None,
        codec=COMPRESSIONS.get(full["compression.type"]),
    )


def _bound(text: str) -> int | None:
    """A number, None for one below 0."""
    return int(text) if int(text) >= 0 else None


class Hosting:
    """All partitions of one shard."""

    def __init__(
        self,
        shard: int,
        store: LogStore,
        stats: Stats,
        on_opened: Callable[[HostedPartition], None],
        on_gone: Callable[[HostedPartition], None],
        topic_defaults: Mapping[str, str],
    ) -> None:
        self.shard = shard
        self.store = store
        self.image = MetadataImage()
        self.hosted: dict[int, HostedPartition] = {}
        self.by_name: dict[TopicPartition, HostedPartition] = {}
        self._stats = stats
        self._on_opened = on_opened
        self._on_gone = on_gone
        self._topic_defaults = topic_defaults
        self._cluster_id = ""
        self._to_open: deque[int] = deque()
        self._opening: set[int] = set()
        self._to_configure: dict[int, None] = {}
        """Partitions whose logs do not have their present settings yet, in order."""
        self._removing: set[int] = set()
        """Deleted, and their directories are not renamed yet."""
        self._names: dict[int, TopicPartition] = {}
        """Of all partitions that are hosted, or will be."""
        self._configs: dict[int, dict[str, str]] = {}
        """All settings of each, whoever has made them."""
        self._retry_at_ms: dict[int, int] = {}
        """Partitions that could not be opened, and when to try again."""
        self._holed: set[int] = set()
        """Partitions whose logs here lack something."""

    @property
    def settled(self) -> bool:
        """All partitions of the present metadata are open and have their settings, or failed to open; those that are
        gone have left their directories, so that another shard may open new ones of the same names."""
        return not self.has_work and not self._removing

    @property
    def closed(self) -> list[int]:
        """Partitions that could not be opened, or reopened: nobody is served from them here."""
        return [partition for partition in self._retry_at_ms if partition not in self.hosted]

    @property
    def has_work(self) -> bool:
        """`work` has something to do at once."""
        return bool(self._to_open or self._to_configure)

    def find(self, partition: int) -> HostedPartition:
        """A partition that must be open; raises what its client should be told."""
        found = self.hosted.get(partition)
        if found is not None:
            return found
        if partition in self._opening or partition in self._retry_at_ms:
            raise PartitionBusy(f"partition {self._names[partition]} is being opened. Retry after a pause")
        raise StaleMetadata(f"partition id {partition} is not served here. Fetch metadata, then retry")

    def find_led(self, partition: int) -> HostedPartition:
        """A partition that must be open, and led by this node; raises what its client should be told."""
        found = self.hosted.get(partition) or self.find(partition)
        if found.replica is not None:
            found.replica.must_lead()
        return found

    def find_in_sync(self, partition: int) -> HostedPartition:
        """As `find_led`, and also one that follows while it is in sync: readers see what it knows to be committed."""
        found = self.find(partition)
        replica = found.replica
        if replica is not None and not replica.serves_readers:
            replica.must_lead()
        return found

    def view_of(self, partition: int, record: Partition) -> PartitionView:
        """A hosted partition as its replicas see it, by the metadata and the settings of its topic."""
        config = self._configs[partition]
        return PartitionView(
            partition,
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.replicas,
            record.isr,
            int(config["min.insync.replicas"]),
            "compact" in config["cleanup.policy"],
            record.adding,
            record.unclean_epoch,
        )

    def deletes(self, partition: int) -> bool:
        """Whether the policy of a hosted partition lets old records be deleted, not only compacted."""
        return "delete" in self._configs[partition]["cleanup.policy"]

    def follow(self) -> None:
        """Compare what is hosted with the image, and plan what must change."""
        node = self.image.node_id
        wanted = {
            found.partition: found
            for found in self.image.partitions.values()
            if found.shard_on(node) == self.shard
        }
        # Another cluster's metadata says nothing about what this one's partitions hold: only ours deletes.
        ours = self._cluster_id in ("", self.image.cluster_id)
        if self.image.cluster_id and not self._cluster_id:
            self._sweep()
        self._cluster_id = self.image.cluster_id
        for partition in [known for known in self._names if known not in wanted]:
            self._drop(partition, deleted=ours and self._is_gone(partition))
        for partition, found in wanted.items():
            config = self._config_of(self.image.topics_by_id[found.topic_id])
            if partition not in self._names:
                self._names[partition] = self.image.name_of(partition)
                self._opening.add(partition)
                self._to_open.append(partition)
            elif self._configs[partition] != config:
                self._to_configure[partition] = None
            self._configs[partition] = config

    def _is_gone(self, partition: int) -> bool:
        """Whether the metadata says that this node has no part in a partition: it was deleted, or moved to others."""
        found = self.image.partitions.get(partition)
        return found is None or found.shard_on(self.image.node_id) is None

    def _config_of(self, topic: TopicState) -> dict[str, str]:
        return settings_of(topic.name, topic.config, self._topic_defaults)

    def _sweep(self) -> None:
        """Remove what is left of partitions that were deleted, or moved away, while nobody served them. Only of those
        whose ids this cluster has given: other metadata, or older, says nothing about what a directory holds."""
        image = self.image
        known = {
            str(image.name_of(partition)) for partition in image.partitions if not self._is_gone(partition)
        }

        def is_deleted(owner: Owner) -> bool:
            given = owner.cluster_id == image.cluster_id and owner.partition < image.next_partition
            return given and self._is_gone(owner.partition)

        self.store.claims.sweep(known, is_deleted)

    def work(self, now_ms: int) -> None:
        """Open what is to be opened, then reconfigure what has other settings now, for a slice of time."""
        if self._retry_at_ms:
            for partition in [p for p, at in self._retry_at_ms.items() if at <= now_ms]:
                if partition in self.hosted and not self._has_room(self._names[partition]):
                    # Opening writes: it would fail, and leave nobody to read from.
                    self._retry_at_ms[partition] = now_ms + REOPEN_MS
                    continue
                del self._retry_at_ms[partition]
                self._opening.add(partition)
                self._to_open.append(partition)
        if not self.has_work:
            return
        until = time.monotonic() + WORK_SLICE_S
        while self._to_open and time.monotonic() < until:
            self._open(self._next_to_open(), now_ms)
        while self._to_configure and time.monotonic() < until:
            self._configure(next(iter(self._to_configure)), now_ms)

    def _configure(self, partition: int, now_ms: int) -> None:
        """Give a log the present settings of its topic."""
        del self._to_configure[partition]
        settings = log_settings(self._configs[partition], replicated=self._is_replicated(partition))
        self.store.reconfigure(self._names[partition], settings, now_ms=now_ms)

    def _next_to_open(self) -> list[int]:
        """Some that are to be made. One that has files may have to be scanned: it is the last for now."""
        some: list[int] = []
        while self._to_open and len(some) < OPEN_TOGETHER:
            some.append(self._to_open.popleft())
            name = self._names.get(some[-1])
            if name is not None and self.store.has_files(name):
                break
        return some

    @property
    def next_retry_ms(self) -> int | None:
        return min(self._retry_at_ms.values()) if self._retry_at_ms else None

    def begin_at(self, hosted: HostedPartition, offset: int, now_ms: int) -> None:
        """Give up what a partition holds here: it begins anew, empty, at an offset."""
        owner = Owner(self.image.cluster_id, hosted.partition)
        with self._reopening(hosted, now_ms):
            hosted.log = self.store.begin_at(hosted.name, offset, owner, now_ms=now_ms)
        hosted.log.committed_offset = offset
        self._stats.partitions.started(hosted.partition, offset)
        self._stats.partitions.grown(hosted.partition, offset)
        self.look_for_hole(hosted)

    def truncate(self, hosted: HostedPartition, offset: int, now_ms: int) -> None:
        """Give up what a partition holds from an offset on."""
        committed = hosted.log.committed_offset
        with self._reopening(hosted, now_ms):
            hosted.log = self.store.truncate(hosted.name, offset, now_ms=now_ms)
        hosted.log.committed_offset = (
            committed if committed is None else min(committed, hosted.log.next_offset)
        )
        self.look_for_hole(hosted)

    def look_for_hole(self, hosted: HostedPartition) -> None:
        """Tell how many partitions lack something here: in this one a hole was found, or is none any more."""
        is_here = self.hosted.get(hosted.partition) is hosted
        if is_here and hosted.log.hole_offset is not None:
            self._holed.add(hosted.partition)
        else:
            self._holed.discard(hosted.partition)
        self._stats.counts["holed_partitions"] = len(self._holed)

    @contextmanager
    def _reopening(self, hosted: HostedPartition, now_ms: int) -> Iterator[None]:
        """For what leaves a log and opens it again: should that fail in between, it is opened later."""
        try:
            yield
        except (RinglogError, OSError) as error:
            log = hosted.log
            if self.store.logs.get(hosted.name) is not log or log.status is not LogStatus.OPEN:
                self._forget(hosted)
                self._refuse(hosted, disk_error(hosted.name, "open", error), now_ms)
            raise

    def fenced(self, log: PartitionLog, error: RinglogError, now_ms: int) -> None:
        """A disk error closed a log: nothing more is taken until it was opened anew from disk."""
        found = self.by_name.get(log.name)
        if found is None or found.log is not log:
            return
        # What was flushed can be read from a full disk as well as from any.
        if not isinstance(error, DiskFull):
            self._forget(found)
        self._refuse(found, error, now_ms)

    def _refuse(self, found: HostedPartition, error: RinglogError, now_ms: int) -> None:
        """Tell those who wait that nothing more is taken, until the log was opened anew."""
        _log.error("%s is fenced: %s", found.name, error)
        self._stats.counts["fenced"] += 1
        self._retry_at_ms[found.partition] = now_ms + REOPEN_MS
        found.acks.refuse_all(error)
        found.leader_acks.refuse_all(error)

    def _open(self, partitions: Iterable[int], now_ms: int) -> None:
        wanted: dict[int, tuple[TopicPartition, LogSettings, Owner | None]] = {}
        for partition in partitions:
            name = self._names.get(partition)
            if name is None:
                continue  # dropped while it waited
            fenced = self.hosted.get(partition)
            if fenced is not None:
                self._forget(fenced)
            self._opening.discard(partition)
            if name in self.store.logs and self.store.logs[name].status is not LogStatus.OPEN:
                self._opened(partition, name, self._reopened(name, now_ms), now_ms)
            else:
                settings = log_settings(self._configs[partition], replicated=self._is_replicated(partition))
                wanted[partition] = name, settings, Owner(self.image.cluster_id, partition)
        found = self.store.open_together(list(wanted.values()), now_ms=now_ms)
        for (partition, (name, _, _)), log in zip(wanted.items(), found, strict=True):
            self._opened(partition, name, log, now_ms)

    def _reopened(self, name: TopicPartition, now_ms: int) -> PartitionLog | OSError | RinglogError:
        try:
            return self.store.reopen(name, now_ms=now_ms)
        except (RinglogError, OSError) as error:
            return error

    def _opened(
        self, partition: int, name: TopicPartition, log: PartitionLog | OSError | RinglogError, now_ms: int
    ) -> None:
        if isinstance(log, Exception):
            _log.error("%s cannot be opened: %s", name, disk_error(name, "open", log))
            self._retry_at_ms[partition] = now_ms + REOPEN_MS
            return
        replica = Replica(self.image.node_id, partition) if self._is_replicated(partition) else None
        hosted = HostedPartition(partition, log, replica)
        self.hosted[partition] = self.by_name[name] = hosted
        ends = log.log_start_offset, log.readable_offset
        self._stats.partitions.host(partition, self.shard, *ends, history(log, now_ms), now_ms=now_ms)
        self._stats.counts["partitions"] = len(self.hosted)
        self.look_for_hole(hosted)
        self._on_opened(hosted)

    def _is_replicated(self, partition: int) -> bool:
        record = self.image.partitions.get(partition)
        return record is not None and bool(record.replicas)

    def _has_room(self, name: TopicPartition) -> bool:
        try:
            found = os.statvfs(self.store.root)
        except OSError:
            return True  # opening will tell what is wrong
        return found.f_bavail * found.f_frsize >= reopen_room(name, found.f_blocks * found.f_frsize)

    def _drop(self, partition: int, *, deleted: bool) -> None:
        name = self._names.pop(partition)
        self._opening.discard(partition)
        self._to_configure.pop(partition, None)
        self._retry_at_ms.pop(partition, None)
        self._configs.pop(partition, None)
        found = self.hosted.get(partition)
        if found is not None:
            self._forget(found)
            gone = StaleMetadata(f"partition {name} is no longer here. Fetch metadata")
            found.acks.refuse_all(gone)
            found.leader_acks.refuse_all(gone)
        self._stats.partitions.leave(partition)
        if deleted:
            self._removing.add(partition)
            self.store.remove(
                name,
                done=lambda: self._removing.discard(partition),
                failed=lambda _error: self._removing.discard(partition),
            )

    def _forget(self, found: HostedPartition) -> None:
        del self.hosted[found.partition], self.by_name[found.name]
        self._stats.counts["partitions"] = len(self.hosted)
        self.look_for_hole(found)
        self._on_gone(found)
