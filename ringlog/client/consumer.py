"""Consumer: reads partitions, those that it is told or those that its group gives it, and remembers where it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ringlog.client import offsets
from ringlog.client.assigned import UNKNOWN, Place
from ringlog.client.commits import CommitCallback, OffsetAndMetadata, check_offsets
from ringlog.client.connection import Connection
from ringlog.client.consumer_settings import ConsumerSettings
from ringlog.client.fetch_driver import FetchDriver
from ringlog.client.fetcher import Fetcher
from ringlog.client.group_reader import GroupReader, Listener
from ringlog.client.near_memory import landing_memory
from ringlog.client.offsets import OffsetAndTimestamp, checked_most, checked_offset
from ringlog.client.one_thread import OneThread, alone
from ringlog.client.polling import FetchedBatches, Poller
from ringlog.client.records import ConsumerRecord
from ringlog.client.rounds import places
from ringlog.client.settings import check_text, check_topic_name, settings_of
from ringlog.client.waits import checked_ms
from ringlog.errors import InvalidRequest, OffsetOutOfRange
from ringlog.limits import GROUP_ID_CHARS_MAX
from ringlog.model import TopicPartition
from ringlog.net.messages import EARLIEST, LATEST

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
Partition = TopicPartition | tuple[str, int]
"""("topic", 0), or the same as a TopicPartition."""

_ITERATED_RECORDS = 1000
"""Records polled at once for a `for` loop."""
_ITERATED_MS = 1000


class Consumer:
    """Reads partitions in order, for one thread at a time: a call that takes records or moves the position is refused
    (InvalidRequest) while another thread is in one; `close` ends it. It fetches ahead while records are worked on.

        with Consumer(bootstrap="127.0.0.1:9400", auto_offset_reset="earliest") as consumer:
            consumer.assign([("orders", 0), ("orders", 1)])
            for record in consumer.poll(timeout_ms=1000):
                print(record.partition, record.offset, record.value)

    With a group the node says who reads what, and remembers how far the group has come:

        with Consumer(bootstrap="127.0.0.1:9400", group_id="billing") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                bill(record)

    Settings have Kafka's names and meanings; `ConsumerSettings` lists them. `bootstrap` as that of a Producer.

    >>> Consumer(fetch_max_wait=3)
    Traceback (most recent call last):
    ringlog.errors.InvalidRequest: there is no setting 'fetch_max_wait'; did you mean 'fetch_max_wait_ms'?
    """

    def __init__(self, bootstrap: str | None = None, group_id: str | None = None, **settings: Any) -> None:
        if bootstrap is not None:
            settings["bootstrap"] = bootstrap
        self._settings = settings_of(ConsumerSettings, settings, "group_id")
        self._connection = Connection(self._settings)
        self._connection.share(landing_memory)
        self._free_in_child()
        self._connection.on_fork(self._free_in_child)
        self._driver = FetchDriver(self._connection, Fetcher(self._settings))
        self._poller = Poller(self._driver, self._settings)
        self._group: GroupReader | None = None
        if group_id is not None:
            self._join(group_id)
        self._unread: list[ConsumerRecord] = []
        """Polled for a `for` loop that has not come to them yet, the next one last."""

    # -- which partitions --------------------------------------------------------------------------------------

    @alone
    def assign(self, partitions: Iterable[Partition | tuple[str, int, int]]) -> None:
        """Read exactly these partitions: ("topic", 0), or ("topic", 0, offset) to start at an offset.

        One that was assigned before, and has no offset here, goes on where it is (unless its topic was made anew: that
        is another one); others start where the group, if
        there is one, has committed, else where `auto_offset_reset` says. Positions are known when this returns:
        records that are produced later are not missed. UnknownTopic when there is no such partition.
        """
        wanted: dict[TopicPartition, int | None] = {}
        for item in partitions:
            match item:
                case (topic, partition, offset):
                    wanted[_partition((topic, partition))] = checked_offset(offset)
                case _:
                    wanted[_partition(item)] = None
        self._driver.check_open()
        if self._group is not None and self._group.subscribed:
            raise InvalidRequest("the group assigns partitions to this consumer: unsubscribe() first")
        self._put_back()
        if self._group is not None:
            wanted |= self._committed_starts([tp for tp, offset in wanted.items() if offset is None])
        found = places(self._connection, wanted, self._api_timeout_s())
        targets: dict[TopicPartition, tuple[Place, int | None]] = {
            tp: (found[tp], offset) for tp, offset in wanted.items()
        }
        self._driver.change(lambda fetcher: fetcher.assign(targets))
        self._driver.settle(wanted, self._api_timeout_s())

    def member_id(self) -> str | None:
        """What the group knows this consumer by while it is subscribed; `Admin.describe_group` names members so."""
        return self._group.member_id if self._group is not None and self._group.subscribed else None

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are being read."""
        return set(self._driver.look(Fetcher.assignment))

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The numbers of a topic's partitions."""
        found = self._connection.topic(topic, timeout_s=self._api_timeout_s())
        return {partition.index for partition in found.partitions}

    def topic_id(self, topic: str) -> int:
        """The id of the topic that has this name now: one that is deleted and made anew has another."""
        return self._connection.topic_told(topic, timeout_s=self._api_timeout_s()).topic_id

    # -- groups ------------------------------------------------------------------------------------------------

    @alone
    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        group_id: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Share topics with the other members of the group: those that are named, and all that fit a pattern such as
        "orders-*", also when they are made later.

        Callbacks get a list of partitions, and are called by `poll`: `on_assigned` before the first record,
        `on_revoked` before others may read them (commit here what you have done), `on_lost` when others may read
        them already (without it, `on_revoked`). What they raise comes out of `poll`, and the partitions go all the
        same; these two may not close or unsubscribe. Partitions that stay are read on undisturbed meanwhile. Another
        call replaces what was subscribed to: what is not wanted any more is given up by one of the next polls.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        if not names and pattern is None:
            raise InvalidRequest("subscribe to topics or to a pattern; unsubscribe() ends it")
        for name in (*names, *([] if pattern is None else [pattern])):
            if not isinstance(name, str):
                raise InvalidRequest(f"topics and patterns are str, and not {name!r}")
            check_text(topic=name)
        for name in names:
            check_topic_name(name)
        for listener in (on_assigned, on_revoked, on_lost):
            if listener is not None and not callable(listener):
                raise InvalidRequest(
                    f"a listener is a function that takes a list of partitions, not {listener!r}"
                )
        self._driver.check_open()
        if group_id is not None and (self._group is None or self._group.group_id != group_id):
            self._join(group_id)
        group = self._require_group()
        if not group.subscribed and self.assignment():
            raise InvalidRequest("partitions are assigned by hand: assign([]) first")
        group.subscribe(names, pattern, on_assigned, on_revoked, on_lost)

    @alone
    def unsubscribe(self) -> None:
        """Leave the group. What was polled is committed first, if the consumer commits by itself."""
        if self._group is not None:
            self._group.check_may_leave()
        self._put_back()
        if self._group is not None and self._group.subscribed:
            self._group.leave(commit=self._settings.enable_auto_commit)

    def commit(
        self,
        offsets: Mapping[Partition, int | OffsetAndMetadata] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Have the group go on from these offsets, durably when this returns; without arguments, from behind the last
        records that were polled. MemberFenced when others read a partition by now."""
        timeout_s = self._api_timeout_s() if timeout_ms is None else checked_ms(timeout_ms)
        self._require_group().commit(_offsets(offsets), timeout_s)

    def commit_async(
        self,
        offsets: Mapping[Partition, int | OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """As `commit`, without waiting. `callback(offsets, error)` is called on the client's thread, or at once
        on this one when there is nothing to commit: do not block."""
        if callback is not None and not callable(callback):
            raise InvalidRequest(
                f"a callback is a function that takes offsets and an error, not {callback!r}"
            )
        self._require_group().commit_async(_offsets(offsets), callback)

    def committed(self, partition: Partition) -> OffsetAndMetadata | None:
        """How far the group has come, None when it has committed nothing there."""
        tp = _partition(partition)
        return self._require_group().commits.committed([tp], self._api_timeout_s())[tp]

    # -- records -----------------------------------------------------------------------------------------------

    @alone
    def poll(
        self, timeout_ms: float = 1000, max_records: int | EllipsisType | None = ...
    ) -> list[ConsumerRecord]:
        """The next records, waiting up to `timeout_ms` for the first; an empty list when none came.

        At most `max_records`, by default `max_poll_records`; None or 0: all that was fetched. Fields are decoded
        when they are looked at. Errors that retries do not help are raised here, typed, and as long as they last again
        by every poll that finds no records; nothing is ever skipped. So it is with UnknownTopic when an assigned topic
        was deleted. One that is made again under its name is another topic: it is read from where `auto_offset_reset`
        says ("error": OffsetOutOfRange until a seek), or from where it is assigned anew.

        UnreadableBatch: what came cannot be read (a CRC that is wrong, records that do not unfold), and is fetched
        again; `seek(error.partition, error.next_offset)` goes on behind it.
        """
        timeout_s = checked_ms(timeout_ms)
        most = self._settings.max_poll_records if max_records is ... else checked_most(max_records)
        self._group_turn()
        if self._unread:
            # A loop over this consumer was left in the middle.
            count = len(self._unread) if most is None else min(most, len(self._unread))
            return [self._unread.pop() for _ in range(count)]
        return self._polled(timeout_s, lambda left_s: self._poller.records(left_s, most)) or []

    @alone
    def poll_arrow(
        self, timeout_ms: float = 1000, max_records: int | None = None
    ) -> pyarrow.RecordBatch | None:
        """The next records of one partition as a `pyarrow.RecordBatch`, None when none came within `timeout_ms`.

        Columns: topic, partition, offset, timestamp, key, value, headers. They are made natively; no Python runs
        per record. All that was fetched in one go, at most `max_records`. Raises as `poll` does.
        """
        timeout_s = checked_ms(timeout_ms)
        most = checked_most(max_records)
        self._put_back()
        return self._polled(timeout_s, lambda left_s: self._poller.arrow(left_s, most))

    @alone
    def poll_batches(self, timeout_ms: float = 1000) -> FetchedBatches | None:
        """The next batches of one partition as the node sent them, None when none came within `timeout_ms`.

        For those who decode on their own: `ringlog.records.decode` checks and opens them. Errors of the node are
        raised as `poll` does.
        """
        timeout_s = checked_ms(timeout_ms)
        self._put_back()
        return self._polled(timeout_s, self._poller.batches)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    @alone
    def __next__(self) -> ConsumerRecord:
        """The next record, waiting as long as it takes. A loop that is left loses nothing: the next poll goes on."""
        self._group_turn()
        while not self._unread:
            found = self._polled(
                _ITERATED_MS / 1000, lambda left_s: self._poller.records(left_s, _ITERATED_RECORDS)
            )
            self._unread = found[::-1] if found else []
        return self._unread.pop()

    # -- positions ---------------------------------------------------------------------------------------------

    def position(self, partition: Partition) -> int:
        """The offset of the record that comes next."""
        tp = self._assigned(partition)
        unread = self._first_unread().get(tp)
        if unread is not None:
            return unread
        self._driver.settle([tp], self._api_timeout_s())
        position = self._driver.look(lambda fetcher: fetcher[tp].position)
        if position == UNKNOWN:
            raise OffsetOutOfRange(f"{tp} has no position. Seek to one")
        return position

    @alone
    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from an offset. One that the log does not have is dealt with as `auto_offset_reset` says."""
        tp, target = self._assigned(partition), checked_offset(offset)
        self._put_back()
        self._driver.change(lambda fetcher: fetcher.seek(tp, target))

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Read on from the oldest record that is kept; without arguments, in all assigned partitions."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Read only what is produced from now on; without arguments, in all assigned partitions."""
        self._seek_to(LATEST, partitions)

    def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The offset of the oldest record that each log keeps. The partitions need not be assigned."""
        return self._ends(EARLIEST, partitions)

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The offset behind the newest readable record of each log. The partitions need not be assigned."""
        return self._ends(LATEST, partitions)

    def offsets_for_times(
        self, timestamps: Mapping[Partition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time in milliseconds; None when none is that young."""
        queries = {tp: offsets.checked_time_ms(at) for tp, at in _by_partition(timestamps, "time_ms").items()}
        return offsets.list_offsets(self._connection, queries, self._api_timeout_s())

    def lag(self, partition: Partition) -> int:
        """How many offsets lie between the position and the end that the node last told of; never negative."""
        tp = self._assigned(partition)
        position = self.position(tp)
        readable = self._driver.look(lambda fetcher: fetcher[tp].readable_offset)
        if readable == UNKNOWN:
            readable = self.end_offsets([tp])[tp]
        return max(0, readable - position)

    # -- pauses ------------------------------------------------------------------------------------------------

    @alone
    def pause(self, *partitions: Partition) -> None:
        """Let polls return nothing of these until they are resumed. What was fetched of them is kept."""
        tps = [self._assigned(partition) for partition in partitions]
        self._put_back()
        self._driver.change(lambda fetcher: fetcher.pause(*tps))

    def resume(self, *partitions: Partition) -> None:
        """Let polls return records of these again."""
        tps = [self._assigned(partition) for partition in partitions]
        self._driver.change(lambda fetcher: fetcher.resume(*tps))

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._driver.look(lambda fetcher: {tp for tp in fetcher.assignment() if fetcher[tp].paused})

    # -- the end -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the consumer and its thread: commit what was polled, leave the group. Twice is fine. Where another thread
        may still work on what it polled, set enable_auto_commit=False and commit what is done.

        Not for a signal handler, which may interrupt this very client: set a flag there, and close where you poll.
        """
        self._end(commit=True)

    def _end(self, *, commit: bool) -> None:
        if not self._connection.closed:
            if self._group is not None:
                self._group.check_may_leave()  # before anything ends
            self._put_back()
            try:
                if self._group is not None:
                    self._group.close(commit=commit)
            finally:
                self._connection.close()
                self._driver.interrupt()  # a poll of another thread ends now, not when its time is over

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A record that raised was not worked on to its end: whoever reads next must see it again.
        self._end(commit=kind is None)

    # -- helpers -----------------------------------------------------------------------------------------------

    def _free_in_child(self) -> None:
        """A thread that was in a call is not there in the child of a fork."""
        self._one_thread = OneThread()

    def _assigned(self, partition: Partition) -> TopicPartition:
        tp = _partition(partition)
        self._driver.check_open()
        if not self._driver.look(lambda fetcher: tp in fetcher):
            raise InvalidRequest(f"{tp} is not assigned. Call assign() with it first")
        return tp

    @alone
    def _seek_to(self, end: int, partitions: tuple[Partition, ...]) -> None:
        tps = [self._assigned(partition) for partition in partitions] or list(self.assignment())
        self._put_back()
        self._driver.change(lambda fetcher: fetcher.seek_to(end, *tps))
        self._driver.settle(tps, self._api_timeout_s())

    def _ends(self, end: int, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        queries = {_partition(partition): end for partition in partitions}
        found = offsets.list_offsets(self._connection, queries, self._api_timeout_s())
        return {tp: 0 if answer is None else answer.offset for tp, answer in found.items()}

    def _put_back(self) -> None:
        """Records that a `for` loop did not come to are fetched again by whoever polls next."""
        first = self._first_unread()
        self._unread = []
        if first:
            self._driver.change(
                lambda fetcher: fetcher.seek_all({tp: at for tp, at in first.items() if tp in fetcher})
            )

    def _first_unread(self) -> dict[TopicPartition, int]:
        first: dict[TopicPartition, int] = {}
        for record in reversed(self._unread):
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return first

    # -- the group's helpers -----------------------------------------------------------------------------------

    def _join(self, group_id: str) -> None:
        if not isinstance(group_id, str) or not 0 < len(group_id) <= GROUP_ID_CHARS_MAX:
            raise InvalidRequest(f"a group_id is a str of 1 to {GROUP_ID_CHARS_MAX} characters")
        check_text(group_id=group_id)
        if self._group is not None:
            raise InvalidRequest(f"this consumer belongs to group {self._group.group_id!r}. Make another one")
        self._group = GroupReader(
            self._connection, self._driver, self._settings, group_id, self._user_positions
        )

    def _require_group(self) -> GroupReader:
        if self._group is None:
            raise InvalidRequest("there is no group: say Consumer(group_id=...)")
        return self._group

    def _polled(self, timeout_s: float, take: Callable[[float], T | None]) -> T | None:
        """What `take` finds within the time. The group has its turn before, and whenever it wants one."""
        if (self._group is None or not self._group.subscribed) and not self._driver.reads_something():
            self._driver.check_open()
            raise InvalidRequest("there is nothing to read: call assign() or subscribe() first")
        if self._group is None:
            return take(timeout_s)
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._group_turn()
            left_s = deadline_s - time.monotonic()
            found = take(max(left_s, 0.0))
            if found or left_s <= 0:
                return found

    def _group_turn(self) -> None:
        if self._group is None:
            return
        changed = True  # also when a callback raises: its partitions have gone all the same
        try:
            changed = self._group.before_poll()
        finally:
            if changed and self._unread:
                # Records of partitions that went away are not for this consumer any more.
                mine = self.assignment()
                self._unread = [r for r in self._unread if TopicPartition(r.topic, r.partition) in mine]

    def _user_positions(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Up to where records were handed out; a poll of another thread may have taken more, which nobody has yet."""
        unread = self._first_unread()
        some = list(tps)
        at = self._driver.look(lambda fetcher: {tp: fetcher[tp].position for tp in some if tp in fetcher})
        in_hand = self._poller.in_hand  # looked at last: it is told before a position moves
        return at | {tp: known[tp] for known in (in_hand, unread) for tp in some if tp in known}

    def _committed_starts(self, tps: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        known = self.assignment()
        new = [tp for tp in tps if tp not in known]
        found = self._require_group().commits.committed(new, self._api_timeout_s())
        return {tp: None if at is None else at.offset for tp, at in found.items()}

    def _api_timeout_s(self) -> float:
        return self._settings.default_api_timeout_ms / 1000


def _partition(given: Any) -> TopicPartition:
    match given:
        case (str(topic), int(partition)) if partition >= 0 and topic:
            check_topic_name(topic)
            return TopicPartition(topic, partition)
    raise InvalidRequest(f'a partition is named like ("topic", 0), and not {given!r}')


def _offsets(
    given: Mapping[Partition, int | OffsetAndMetadata] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    return None if given is None else check_offsets(_by_partition(given, "offset"))


def _by_partition(given: Any, value: str) -> dict[TopicPartition, Any]:
    if not isinstance(given, Mapping):
        raise InvalidRequest(f'give a dict such as {{("topic", 0): {value}}}, and not {given!r}')
    return {_partition(tp): at for tp, at in given.items()}
