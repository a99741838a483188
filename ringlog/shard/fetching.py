"""Fetches: sessions that remember what a client reads, long polls that wait for it, and replies that lend memory.

A session knows which of its partitions have something to read (`hot`), so that a fetch of a thousand quiet
partitions costs nothing until one of them grows. One fetch of a session waits at a time: a newer one ends it.
"""

from __future__ import annotations

import ctypes
import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakSet

from ringlog.errors import (
    FetchSessionLost,
    InvalidRequest,
    OffsetOutOfRange,
    PartitionFenced,
    RinglogError,
    StaleMetadata,
)
from ringlog.limits import (
    FETCH_BYTES_MAX,
    FETCH_PARTITIONS_MAX,
    FETCH_SESSION_PARTITIONS_PER_SHARD_MAX,
    FETCH_SESSIONS_PER_CLIENT_MAX,
    FETCH_SESSIONS_PER_SHARD_MAX,
    FETCH_WAIT_MS_MAX,
    KIB,
    LENT_RANGES_MAX,
    SESSION_IDLE_MS,
)
from ringlog.log.reading import Slices
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from ringlog.net.framing import Flag
from ringlog.net.messages import FETCH_ROW_PACK, FetchPartition, FetchRequest, pack_fetch_head
from ringlog.net.wire_errors import number_of
from ringlog.ring.stats import Stats
from ringlog.shard.asker import Asker
from ringlog.shard.commands import LENT, pack_lent
from ringlog.shard.hosting import HostedPartition, read_refusal

INLINE_BYTES_MAX = 16 * KIB
"""Replies up to this size are copied into the reply ring; larger ones are lent."""


class FetchSession:
    """What one client reads of this shard."""

    __slots__ = ("find", "hot", "owner", "session", "unwatched", "used_ms", "waiting", "wants")

    def __init__(
        self, session: int, owner: tuple[object, int], find: Callable[[int], HostedPartition]
    ) -> None:
        self.session = session
        self.find = find
        """A partition that it may read here; raises what its client should be told."""
        self.owner = owner
        """The network process's outlet and the client's session there."""
        self.wants: dict[int, FetchPartition] = {}
        self.hot: OrderedDict[int, None] = OrderedDict()
        """Partitions with something to say: records to read, or an error. The longest unserved first."""
        self.unwatched: set[int] = set()
        """Partitions of which it would not be told that they grow: they were not open when it asked, or were closed."""
        self.waiting: Fetch | None = None
        self.used_ms = 0


class Fetch:
    """One fetch on its way through the shard."""

    __slots__ = (
        "asker",
        "bytes_left",
        "bytes_min",
        "deadline_ms",
        "ranges_left",
        "reading",
        "rows",
        "served",
        "session",
        "slices",
    )

    def __init__(self, asker: Asker, session: FetchSession, request: FetchRequest, now_ms: int) -> None:
        self.asker = asker
        self.session = session
        self.bytes_min = request.bytes_min
        wait_ms = min(max(request.wait_ms, 0), FETCH_WAIT_MS_MAX) if request.bytes_min > 0 else 0
        self.deadline_ms = now_ms + wait_ms
        self.bytes_left = min(max(request.bytes_max, 1), FETCH_BYTES_MAX)
        self.ranges_left = LENT_RANGES_MAX
        self.rows: list[bytes] = []
        self.slices: list[Slices] = []
        self.reading = 0
        """Reads from disk that are under way."""
        self.served: list[int] = []


class FetchDesk:
    """All fetches of a shard."""

    def __init__(
        self,
        store: LogStore,
        stats: Stats,
        find: Callable[[int], HostedPartition],
        region: memoryview,
        first_session: int = 1,
        find_follower: Callable[[int], HostedPartition] | None = None,
        *,
        hosted: Mapping[int, HostedPartition],
    ) -> None:
        """`find`: a partition that clients may read here; `find_follower`: those who take it from a follower, too;
        `hosted`: all that are open here, whoever may read them."""
        self._store = store
        self._stats = stats
        self._find_led = find
        self._find_follower = find_follower or find
        self._hosted = hosted
        self._region_at = _address(region)
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """The longest unused first."""
        self._of_client: dict[tuple[object, int], OrderedDict[int, None]] = {}
        """Their numbers by owner, in the same order."""
        self._wants_count = 0
        """Of all sessions."""
        self._next_session = first_session
        """Not the same after a restart: a client that still has a session of a dead shard must not meet another's."""
        self._deadlines: list[tuple[int, int, Fetch]] = []
        self._order = 0
        self._lent: dict[int, tuple[object, list[Slices]]] = {}
        self._forgotten: WeakSet[object] = WeakSet()
        """Outlets of dead network processes: nobody will give back what a reply to them lends."""
        self._next_token = 1

    # -- requests ------------------------------------------------------------------------------------------

    def fetch(self, asker: Asker, request: FetchRequest, now_ms: int) -> None:
        """Take a fetch: answer it now, or let it wait."""
        session = self._session(asker, request)
        session.used_ms = now_ms
        if session.waiting is not None:
            ended, session.waiting = session.waiting, None
            self._finish(ended)
        for handle in request.forget:
            self._forget_want(session, handle)
        for want in request.partitions:
            self._want(session, want)
        while self._wants_count > FETCH_SESSION_PARTITIONS_PER_SHARD_MAX and len(self._sessions) > 1:
            self._end_session(next(iter(self._sessions)))
        fetch = Fetch(asker, session, request, now_ms)
        if not self._serve(fetch, now_ms):
            session.waiting = fetch
            self._order += 1
            heapq.heappush(self._deadlines, (fetch.deadline_ms, self._order, fetch))
            if len(self._deadlines) > 64 + 4 * len(self._sessions):
                # Most were answered long before their time was up.
                self._deadlines = [due for due in self._deadlines if due[2].session.waiting is due[2]]
                heapq.heapify(self._deadlines)

    def _session(self, asker: Asker, request: FetchRequest) -> FetchSession:
        owner = (asker.outlet, asker.session)
        session = self._sessions.get(request.session)
        if session is not None and session.owner != owner:
            session = None
        self._check_count(session, request)
        if request.session:
            if session is None:
                raise FetchSessionLost(f"fetch session {request.session} is not known. Send a full fetch")
            self._sessions.move_to_end(request.session)
            self._of_client[owner].move_to_end(request.session)
        else:
            if len(own := self._of_client.get(owner, ())) >= FETCH_SESSIONS_PER_CLIENT_MAX:
                self._end_session(next(iter(own)))
            elif len(self._sessions) >= FETCH_SESSIONS_PER_SHARD_MAX:
                self._end_session(next(iter(self._sessions)))
            find = self._find_follower if request.follower else self._find_led
            session = FetchSession(self._next_session, owner, find)
            self._sessions[self._next_session] = session
            self._of_client.setdefault(owner, OrderedDict())[self._next_session] = None
            self._next_session = self._next_session % 0xFFFFFFFE + 1
        return session

    def _check_count(self, known: FetchSession | None, request: FetchRequest) -> None:
        """Raise when the session would have too many partitions. Few are not counted one by one."""
        already = () if known is None else known.wants.keys()
        if len(request.partitions) + len(already) <= FETCH_PARTITIONS_MAX:
            return
        wanted = {want.partition for want in request.partitions}
        if len(wanted.union(already) - (set(request.forget) - wanted)) > FETCH_PARTITIONS_MAX:
            raise InvalidRequest(f"a fetch session has at most {FETCH_PARTITIONS_MAX} partitions")

    def _want(self, session: FetchSession, want: FetchPartition) -> None:
        self._wants_count += want.partition not in session.wants
        session.wants[want.partition] = want
        try:
            hosted = session.find(want.partition)
        except RinglogError:
            session.hot[want.partition] = None
            session.unwatched.add(want.partition)
            return
        hosted.watchers.add(session)
        session.unwatched.discard(want.partition)
        self._judge_heat(session, want, hosted)

    def _judge_heat(self, session: FetchSession, want: FetchPartition, hosted: HostedPartition) -> None:
        if _has_news(want.offset, hosted):
            session.hot[want.partition] = None
        else:
            session.hot.pop(want.partition, None)

    def _forget_want(self, session: FetchSession, handle: int) -> None:
        self._wants_count -= session.wants.pop(handle, None) is not None
        session.hot.pop(handle, None)
        session.unwatched.discard(handle)
        # Not through `find`: it may watch one that it may not read any more, as a follower that fell out of sync.
        hosted = self._hosted.get(handle)
        if hosted is not None:
            hosted.watchers.discard(session)

    # -- what happens meanwhile ------------------------------------------------------------------------------

    def grown(self, hosted: HostedPartition, now_ms: int) -> None:
        """A partition has new records to read."""
        for session in list(hosted.watchers):
            assert isinstance(session, FetchSession)
            want = session.wants[hosted.partition]
            if not _has_news(want.offset, hosted):
                continue
            session.hot[hosted.partition] = None
            if session.waiting is not None and self._serve(session.waiting, now_ms):
                session.waiting = None

    def gone(self, hosted: HostedPartition, now_ms: int) -> None:
        """A partition is no longer open here: those who wait for it are told."""
        watchers = list(hosted.watchers)
        hosted.watchers.clear()  # first: one that may go on to read here begins to watch again
        for session in watchers:
            assert isinstance(session, FetchSession)
            session.hot[hosted.partition] = None
            session.unwatched.add(hosted.partition)
            if session.waiting is not None and self._serve(session.waiting, now_ms):
                session.waiting = None

    def expire(self, now_ms: int) -> None:
        """End the fetches whose time is up, and the sessions that nobody uses any more."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, fetch = heapq.heappop(self._deadlines)
            if fetch.session.waiting is fetch:
                fetch.session.waiting = None
                self._serve(fetch, now_ms)
        while self._sessions:
            session = next(iter(self._sessions.values()))
            if now_ms - session.used_ms <= SESSION_IDLE_MS:
                break
            self._end_session(session.session)

    @property
    def next_deadline_ms(self) -> int | None:
        while self._deadlines and self._deadlines[0][2].session.waiting is not self._deadlines[0][2]:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def release(self, tokens: Iterable[int]) -> None:
        """The network process has copied what it was lent."""
        for token in tokens:
            _, lent = self._lent.pop(token, (None, []))
            _release(lent)

    def forget(self, outlet: object) -> None:
        """A network process is dead: what it was lent, and the sessions of its clients, are nobody's."""
        self._forgotten.add(outlet)
        self.release([token for token, (to, _) in self._lent.items() if to is outlet])
        for number in [n for n, session in self._sessions.items() if session.owner[0] is outlet]:
            self._end_session(number)

    def client_left(self, outlet: object, client: int) -> None:
        """The connection of a client has ended, and its sessions with it: each would cost something at every append."""
        for number in list(self._of_client.get((outlet, client), ())):
            self._end_session(number)

    def _end_session(self, number: int) -> None:
        session = self._sessions.pop(number)
        own = self._of_client[session.owner]
        del own[number]
        if not own:
            del self._of_client[session.owner]
        for handle in list(session.wants):
            self._forget_want(session, handle)
        waiting, session.waiting = session.waiting, None
        if waiting is not None:
            waiting.asker.refuse(
                FetchSessionLost("the fetch session has made room for others. Send a full fetch")
            )

    # -- serving ---------------------------------------------------------------------------------------------

    def _serve(self, fetch: Fetch, now_ms: int) -> bool:
        """Answer if there is enough to say. True: it is answered, or will be when its reads are done."""
        session = fetch.session
        if session.unwatched:
            self._look_again(session)
        if not session.hot:
            if now_ms >= fetch.deadline_ms:
                self._finish(fetch)
                return True
            return False
        if fetch.bytes_min > 1 and now_ms < fetch.deadline_ms and not self._enough(fetch):
            return False
        fetch.reading += 1  # keeps reads that are done at once from ending the fetch
        for handle in list(session.hot):
            if fetch.bytes_left <= 0 or fetch.ranges_left <= 0:
                break
            session.hot.move_to_end(handle)
            self._serve_partition(fetch, session.wants[handle])
        self._read_done(fetch)
        return True

    def _look_again(self, session: FetchSession) -> None:
        """Partitions that were not open when they were asked for, or were opened anew since: they may be quiet now."""
        for handle in list(session.unwatched):
            try:
                hosted = session.find(handle)
            except RinglogError:
                continue
            hosted.watchers.add(session)
            session.unwatched.discard(handle)
            self._judge_heat(session, session.wants[handle], hosted)

    def _enough(self, fetch: Fetch) -> bool:
        """Whether `bytes_min` are there: exactly counted in memory; what lies on disk is always enough."""
        total = 0
        for handle in fetch.session.hot:
            want = fetch.session.wants[handle]
            try:
                hosted = fetch.session.find(handle)
                slices = self._store.read_tail(hosted.name, want.offset, max(want.bytes_max, 1))
            except RinglogError:
                return True
            if slices is None:
                return True
            total += slices.nbytes
            slices.release()
            if total >= fetch.bytes_min:
                return True
        return False

    def _serve_partition(self, fetch: Fetch, want: FetchPartition) -> None:
        budget = max(1, min(want.bytes_max, fetch.bytes_left))
        hosted = None
        try:
            hosted = fetch.session.find(want.partition)
            slices = self._read_tail(hosted.name, want.offset, budget, fetch.ranges_left)
        except RinglogError as error:
            self._add_error(fetch, want.partition, hosted, error)
            return
        if slices is not None:
            self._add_row(fetch, hosted, slices)
            return
        fetch.reading += 1
        fetch.bytes_left -= budget
        self._store.read(
            hosted.name,
            want.offset,
            budget,
            done=lambda slices: self._cold_done(fetch, hosted, slices, budget),
            failed=lambda error: self._cold_failed(fetch, hosted, error),
        )

    def _read_tail(self, name: TopicPartition, offset: int, bytes_max: int, ranges_max: int) -> Slices | None:
        """As the log's, in so many ranges at most, or one batch: many small appends are many ranges."""
        slices = self._store.read_tail(name, offset, bytes_max)
        while slices is not None and len(slices.views) > ranges_max and bytes_max > 1:
            bytes_max = min(bytes_max, slices.nbytes) // 2
            slices.release()
            slices = self._store.read_tail(name, offset, bytes_max)
        return slices

    def _cold_done(self, fetch: Fetch, hosted: HostedPartition, slices: Slices, budget: int) -> None:
        fetch.bytes_left += budget
        self._add_row(fetch, hosted, slices)
        self._read_done(fetch)

    def _cold_failed(self, fetch: Fetch, hosted: HostedPartition, error: RinglogError | OSError) -> None:
        self._add_error(fetch, hosted.partition, hosted, read_refusal(hosted, error))
        self._read_done(fetch)

    def _read_done(self, fetch: Fetch) -> None:
        fetch.reading -= 1
        if fetch.reading == 0:
            self._finish(fetch)

    def _add_row(self, fetch: Fetch, hosted: HostedPartition, slices: Slices) -> None:
        log = hosted.log
        row = FETCH_ROW_PACK.pack(
            hosted.partition,
            0,
            0,
            log.log_start_offset,
            log.readable_offset,
            slices.next_offset,
            slices.nbytes,
            0,
        )
        fetch.rows.append(row)
        fetch.slices.append(slices)
        fetch.bytes_left -= slices.nbytes
        fetch.ranges_left -= len(slices.views)
        self._stats.moved(hosted.partition, bytes_out=slices.nbytes)

    def _add_error(
        self, fetch: Fetch, partition: int, hosted: HostedPartition | None, error: RinglogError
    ) -> None:
        start = readable = -1
        if isinstance(error, OffsetOutOfRange) and hosted is not None:
            start, readable = hosted.log.log_start_offset, hosted.log.readable_offset
        elif not isinstance(error, StaleMetadata | PartitionFenced):
            self._stats.counts["errors"] += 1
        fetch.rows.append(FETCH_ROW_PACK.pack(partition, number_of(error), 0, start, readable, -1, 0, 0))

    def _finish(self, fetch: Fetch) -> None:
        self._stats.counts["fetches"] += 1
        self._stats.counts["bytes_out"] += sum(slices.nbytes for slices in fetch.slices)
        self.lend(fetch.asker, pack_fetch_head(fetch.session.session, fetch.rows), fetch.slices)

    def lend(self, asker: Asker, head: bytes, all_slices: list[Slices]) -> None:
        """Answer with a head and data: a little is copied, much is lent until the network process gives it back."""
        views = [view for slices in all_slices for view in slices.views]
        if asker.outlet in self._forgotten:
            _release(all_slices)
            return
        if sum([view.nbytes for view in views]) <= INLINE_BYTES_MAX:
            asker.reply(b"".join([head, *views]))
            _release(all_slices)
            return
        token, self._next_token = self._next_token, self._next_token + 1
        ranges = [(_address(view) - self._region_at, view.nbytes) for view in views]
        self._lent[token] = (asker.outlet, all_slices)
        try:
            asker.reply(pack_lent(token, head, ranges), Flag.REPLY | LENT)
        except RinglogError as error:  # it fits no ring
            self.release([token])
            asker.refuse(error)


def _has_news(offset: int, hosted: HostedPartition) -> bool:
    """Whether there is something to say to who reads on from here: records, or that the offset is none of the log's.
    What is held and not committed yet is no news: a new leader may know less than its readers do."""
    return not hosted.log.readable_offset <= offset <= hosted.log.held_offset


def _release(all_slices: list[Slices]) -> None:
    for slices in all_slices:
        slices.release()


def _address(view: memoryview) -> int:
    """Where a view's first byte lies in this process."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))
