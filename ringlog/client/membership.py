"""A member's side of its group: when to send heartbeats, what their answers mean, what to take and to give up. Pure.

    told   what the group says that this member is to hold
    held   what the poller really works on; never more than the group knows of

The poller moves `held` towards `told`: it gives up what is not in it, which the next heartbeat says, and takes the
rest. When the group has not answered for a session, or fences the member, everything is lost at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ringlog.errors import InstanceFenced, InvalidRequest, MemberFenced, RinglogError
from ringlog.limits import HEARTBEAT_WAIT_MS_MAX
from ringlog.model import TopicPartition
from ringlog.net.group_messages import (
    JOIN,
    LEAVE,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    TopicPartitions,
)


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What a member says of itself."""

    group_id: str
    member_id: str
    instance_id: str
    session_timeout_ms: int
    assignor: str
    client_id: str
    retry_backoff_ms: int
    retry_backoff_max_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Heartbeat:
    """One that was sent: an answer counts only in the life in which it was asked for."""

    request: GroupHeartbeatRequest
    life: int
    sent_s: float


class Membership:
    """Not thread-safe: its owner has a lock."""

    def __init__(self, settings: MemberSettings, now_s: float) -> None:
        self.settings = settings
        self.epoch = JOIN
        self.told: frozenset[TopicPartition] = frozenset()
        self.held: set[TopicPartition] = set()
        self.lost: set[TopicPartition] = set()
        """What was held until the group took it away; the poller has not heard of it yet."""
        self.failure: RinglogError | None = None
        """Why this member can never be one again."""
        self._since: dict[TopicPartition, int] = {}
        """The epoch with which each partition came to be told."""
        self._topics: tuple[str, ...] = ()
        self._pattern: str | None = None
        self._unsaid = True
        """The group does not know the subscription yet."""
        self._life = 0
        self._under_way: Heartbeat | None = None
        self._news = True
        """Something is to be said at once."""
        self._answered_s = now_s
        """When the last heartbeat that was answered had been sent."""
        self._not_before_s = 0.0
        self._retries = 0

    # -- the poller's side ---------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], pattern: str | None) -> None:
        """Be a member that reads these."""
        self._topics, self._pattern = tuple(topics), pattern
        self._unsaid = self._news = True

    def succeed(self, old: Membership) -> None:
        """Be a copy of a member in the child of a fork: another member, the same subscription. What the old one held,
        it still holds, and this one does not."""
        self.lost = old.held | old.lost
        if old._topics or old._pattern is not None:
            self.subscribe(old._topics, old._pattern)
        if self.settings.instance_id:
            self.failure = InvalidRequest(
                "a fork copied this consumer, and two processes cannot have one group_instance_id. Make a new one"
            )

    @property
    def to_give_up(self) -> set[TopicPartition]:
        return self.held - self.told

    @property
    def to_take(self) -> dict[TopicPartition, int]:
        """What to begin with, and since which epoch it is this member's."""
        return {tp: self._since[tp] for tp in self.told - self.held}

    @property
    def unsettled(self) -> bool:
        """The poller has something to do, or to hear."""
        return bool(self.lost) or self.held != self.told or self.failure is not None

    def gave_up(self, tps: Iterable[TopicPartition]) -> None:
        """The work on these has ended: say so, others wait for them."""
        self.held.difference_update(tps)
        self._news = True

    def took(self, tps: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """The work on these begins, as `to_take` had them; not on those that were another's meanwhile, which may have
        come further than was known then. Those that are taken."""
        taken = {tp for tp, since in tps.items() if self._since.get(tp) == since}
        self.held |= taken
        return taken

    def take_lost(self) -> set[TopicPartition]:
        """What was lost since the last call."""
        lost, self.lost = self.lost, set()
        return lost

    # -- the side of requests ------------------------------------------------------------------------------------

    def due(self, now_s: float) -> Heartbeat | None:
        """The heartbeat to send now."""
        if self.failure is not None:
            return None
        if self.epoch != JOIN and now_s >= self._answered_s + self.settings.session_timeout_ms / 1000:
            self._lose_all(now_s)
        waiting = self._under_way is not None
        if (waiting and not self._news) or now_s < self._not_before_s:
            return None
        settings = self.settings
        joining = self.epoch == JOIN
        if joining and waiting:
            return None  # a second one would only be answered with the same
        said = joining or self._unsaid
        request = GroupHeartbeatRequest(
            settings.group_id,
            settings.member_id,
            self.epoch,
            grouped(self.held),
            0 if joining else HEARTBEAT_WAIT_MS_MAX,
            list(self._topics) if said else None,
            self._pattern if said else None,
            settings.session_timeout_ms,
            settings.instance_id,
            settings.assignor,
            settings.client_id,
        )
        self._unsaid = self._news = False
        self._under_way = Heartbeat(request, self._life, now_s)
        return self._under_way

    def next_s(self, now_s: float) -> float | None:
        """When `due` may have something to say, if nothing happens before."""
        if self.failure is not None:
            return None
        end_s = self._answered_s + self.settings.session_timeout_ms / 1000 if self.epoch != JOIN else None
        if self._under_way is None or self._news:
            return self._not_before_s if end_s is None else min(self._not_before_s, end_s)
        return end_s

    def answered(self, heartbeat: Heartbeat, reply: GroupHeartbeatReply, now_s: float) -> None:
        """The group has spoken."""
        self._landed(heartbeat)
        if heartbeat.life != self._life or reply.member_epoch < self.epoch:
            return
        if now_s >= heartbeat.sent_s + self.settings.session_timeout_ms / 1000:
            return  # what it says was true once: the group may have taken this member for dead since
        self._retries, self._not_before_s = 0, 0.0
        self._answered_s = max(self._answered_s, heartbeat.sent_s)
        if reply.assigned is None:
            return
        self.epoch = reply.member_epoch
        self.told = frozenset(
            TopicPartition(some.topic, index) for some in reply.assigned for index in some.partitions
        )
        self._since = {tp: self._since.get(tp, self.epoch) for tp in self.told}

    def failed(self, heartbeat: Heartbeat, error: RinglogError, now_s: float) -> None:
        """No answer, or a bad one."""
        self._landed(heartbeat)
        if heartbeat.life != self._life:
            return
        request = heartbeat.request
        if request.topics is not None or request.pattern is not None:
            self._unsaid = True
        if isinstance(error, MemberFenced):
            self._lose_all(now_s)
        elif isinstance(error, InstanceFenced) or not error.retriable:
            self._lose_all(now_s)
            self.failure = error
        else:
            settings = self.settings
            pause_ms = min(settings.retry_backoff_ms * 2**self._retries, settings.retry_backoff_max_ms)
            self._retries = min(self._retries + 1, 16)
            self._not_before_s = now_s + pause_ms / 1000

    def leave(self) -> GroupHeartbeatRequest | None:
        """The last heartbeat; None when there is none to send: a named member comes back, one that never was need not
        leave."""
        self._life += 1
        joined = self.epoch != JOIN or self._under_way is not None
        self.epoch, self.told, self.held = JOIN, frozenset(), set()
        if self.settings.instance_id or self.failure is not None or not joined:
            return None
        return GroupHeartbeatRequest(self.settings.group_id, self.settings.member_id, LEAVE)

    def _landed(self, heartbeat: Heartbeat) -> None:
        if self._under_way is heartbeat:
            self._under_way = None

    def _lose_all(self, now_s: float) -> None:
        """Nothing is held any more, and whatever is still on its way counts no more: join again."""
        self.lost |= self.held
        self.epoch, self.told, self.held, self._since = JOIN, frozenset(), set(), {}
        self._life += 1
        self._under_way = None
        self._answered_s = now_s


def grouped(tps: Iterable[TopicPartition]) -> list[TopicPartitions]:
    """Partitions by topic, as the wire has them.

    >>> grouped([TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)])
    [TopicPartitions(topic='a', partitions=[0]), TopicPartitions(topic='b', partitions=[0, 1])]
    """
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(tps):
        topics.setdefault(topic, []).append(index)
    return [TopicPartitions(topic, some) for topic, some in topics.items()]
