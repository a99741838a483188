"""A member's side of its group: alone, step by step, and several against a real coordinator through a bad network."""

from __future__ import annotations

import random

import pytest

from ringlog.client.membership import MemberSettings, Membership
from ringlog.coordination.catalogue import TopicInfo
from ringlog.coordination.coordinator import GroupCoordinator
from ringlog.errors import InstanceFenced, MemberFenced, RequestTimeout, RinglogError
from ringlog.model import TopicPartition
from ringlog.net.group_messages import JOIN, GroupHeartbeatReply, TopicPartitions
from tests.support.amounts import cases


def member(name: str = "m", now_s: float = 0.0, instance: str = "") -> Membership:
    made = Membership(MemberSettings("g", name, instance, 10_000, "sticky", "", 50, 1_000), now_s)
    made.subscribe(["t"], None)
    return made


def told(epoch: int, *indexes: int) -> GroupHeartbeatReply:
    return GroupHeartbeatReply(epoch, [TopicPartitions("t", list(indexes))])


def tps(*indexes: int) -> set[TopicPartition]:
    return {TopicPartition("t", index) for index in indexes}


def joined(*indexes: int) -> Membership:
    made = member()
    made.answered(made.due(0.0), told(2, *indexes), 0.0)
    made.took(made.to_take)
    return made


def test_the_first_heartbeat_joins_with_the_subscription_and_the_next_waits():
    one = member()
    first = one.due(0.0)
    assert (first.request.member_epoch, first.request.topics, first.request.wait_ms) == (JOIN, ["t"], 0)
    assert one.due(0.1) is None, "one is under way"
    one.answered(first, told(2, 0, 1), 0.1)
    assert set(one.to_take) == tps(0, 1)
    second = one.due(0.2)
    assert (second.request.member_epoch, second.request.topics, second.request.wait_ms) == (2, None, 3000)


def test_what_is_given_up_is_said_at_once_though_a_heartbeat_waits():
    one = joined(0, 1)
    one.answered(one.due(0.0), told(3, 0), 0.0)
    assert one.to_give_up == tps(1)
    waiting = one.due(0.1)
    assert waiting.request.owned == [TopicPartitions("t", [0, 1])], "it still works on it"
    assert one.due(0.2) is None
    one.gave_up(tps(1))
    assert one.due(0.3).request.owned == [TopicPartitions("t", [0])]
    one.answered(waiting, GroupHeartbeatReply(3), 0.3)
    assert one.due(0.4) is None, "the newer one is under way"


def test_an_answer_that_was_overtaken_does_not_count():
    one = joined(0)
    late = one.due(0.0)
    one.gave_up(())
    one.answered(one.due(0.1), told(4, 0, 1), 0.1)
    one.answered(late, told(3), 0.2)
    assert one.told == tps(0, 1)


def test_a_fenced_member_loses_all_and_joins_again_as_the_same():
    one = joined(0, 1)
    one.failed(one.due(0.0), MemberFenced("no"), 0.1)
    assert (one.held, one.take_lost(), one.take_lost()) == (set(), tps(0, 1), set())
    again = one.due(0.2).request
    assert (again.member_epoch, again.member_id, again.topics) == (JOIN, "m", ["t"])


def test_a_member_that_nobody_answers_for_a_session_loses_all():
    one = joined(0)
    under_way = one.due(1.0)
    assert one.next_s(1.0) == 10.0, "counted from when the last answered one was sent"
    assert one.due(9.9) is None
    again = one.due(10.0)
    assert one.lost == tps(0)
    assert again.request.member_epoch == JOIN
    one.answered(under_way, told(9, 0), 10.1)
    assert one.told == frozenset(), "an answer from before counts no more"


def test_an_answer_that_took_a_session_to_come_does_not_count():
    one = member()
    one.answered(one.due(0.0), told(2, 0), 10.0)
    assert one.told == frozenset(), "the group may have taken it for dead since"
    assert one.due(10.0).request.member_epoch == JOIN


def test_a_retry_waits_longer_each_time_and_says_the_subscription_again():
    one = member()
    one.failed(one.due(0.0), RequestTimeout("late"), 1.0)
    assert one.due(1.04) is None
    again = one.due(1.05)
    assert again.request.topics == ["t"]
    one.failed(again, RequestTimeout("late"), 2.0)
    assert one.next_s(2.0) == 2.1


def test_a_second_process_of_the_same_name_ends_the_first():
    one = joined(0)
    one.failed(one.due(0.0), InstanceFenced("taken"), 0.1)
    assert isinstance(one.failure, InstanceFenced)
    assert one.due(99.0) is None


def test_a_named_member_does_not_leave():
    one = member(instance="i")
    one.answered(one.due(0.0), told(2, 0), 0.0)
    assert one.leave() is None
    other = joined(0)
    assert other.leave().member_epoch == -1
    assert member().leave() is None, "it never was one"


def test_a_change_of_subscription_is_said_once():
    one = joined(0)
    one.answered(one.due(0.0), GroupHeartbeatReply(2), 0.0)
    one.subscribe(["u"], "v*")
    changed = one.due(0.1)
    assert (changed.request.topics, changed.request.pattern) == (["u"], "v*")
    one.answered(changed, GroupHeartbeatReply(2), 0.2)
    assert one.due(0.2).request.topics is None


def test_what_was_anothers_meanwhile_is_not_taken_from_where_it_was():
    one = joined(0)
    one.answered(one.due(0.0), told(3, 0, 1), 0.0)
    begun = one.to_take
    one.answered(one.due(0.1), told(4, 0), 0.1)
    one.answered(one.due(0.2), told(5, 0, 1), 0.2)
    assert one.took(begun) == set(), "another may have committed: ask again where to begin"
    assert one.took(one.to_take) == tps(1)


def test_the_child_of_a_fork_is_another_member_that_holds_nothing():
    parent, child = joined(0, 1), member("child")
    child.succeed(parent)
    assert (child.held, child.lost, parent.held) == (set(), tps(0, 1), tps(0, 1))
    assert child.due(0.0).request.topics == ["t"]
    named = member("named", instance="i")
    named.succeed(parent)
    assert named.failure is not None


class Fleet:
    """Members, a coordinator, and what is on its way between them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now_ms = 0
        self.coordinator = GroupCoordinator({"t": TopicInfo(1, 5)})
        self.coordinator.loaded(0)
        self.members: list[Membership] = []
        self.to_node: list = []
        self.to_members: list = []

    def send(self) -> None:
        for one in self.members:
            heartbeat = one.due(self.now_ms / 1000)
            if heartbeat is not None:
                self.to_node.append((one, heartbeat))

    def deliver(self, bag: list, *, fails: float = 0.0) -> None:
        if not bag:
            return
        one, heartbeat, *answer = bag.pop(self.chance.randrange(len(bag)))
        if self.chance.random() < fails:
            one.failed(heartbeat, RequestTimeout("lost"), self.now_ms / 1000)
        elif not answer:
            self.judge(one, heartbeat)
        elif isinstance(answer[0], RinglogError):
            one.failed(heartbeat, answer[0], self.now_ms / 1000)
        else:
            one.answered(heartbeat, answer[0], self.now_ms / 1000)

    def judge(self, one: Membership, heartbeat) -> None:
        try:
            outcome = self.coordinator.heartbeat((one, heartbeat), heartbeat.request, self.now_ms)
        except RinglogError as error:
            self.to_members.append((one, heartbeat, error))
            return
        self.keep(outcome)

    def keep(self, outcome) -> None:
        self.to_members += [(*reply.ticket, reply.body) for reply in outcome.replies]

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.send()
        self.keep(self.coordinator.tick(self.now_ms))

    def work(self, one: Membership) -> None:
        one.gave_up(one.to_give_up)
        one.took(one.to_take)
        one.take_lost()

    def step(self) -> None:
        match self.chance.choices(range(7), [1, 6, 6, 4, 3, 1, 0.6])[0]:
            case 0 if len(self.members) < 4:
                self.members.append(member(f"m{self.chance.random()}", self.now_ms / 1000))
            case 1:
                self.deliver(self.to_node, fails=0.1)
            case 2:
                self.deliver(self.to_members, fails=0.1)
            case 3 if self.members:
                self.work(self.chance.choice(self.members))
            case 4:
                self.pass_time(self.chance.choice((10, 500, 3_000)))
            case 5:
                self.send()
            case 6 if self.members:
                self.members.pop(self.chance.randrange(len(self.members)))

    def one_reader(self) -> None:
        held = [tp for one in self.members for tp in one.held]
        assert len(held) == len(set(held)), "a partition has one reader at most"

    def rest(self) -> None:
        for _ in range(30):
            self.pass_time(1_000)
            while self.to_node or self.to_members:
                self.deliver(self.to_node)
                self.deliver(self.to_members)
            for one in self.members:
                self.work(one)
            self.one_reader()
        held = sorted(tp for one in self.members for tp in one.held)
        assert held == (sorted(tps(0, 1, 2, 3, 4)) if self.members else [])


@pytest.mark.parametrize("seed", cases(10, 1000))
def test_members_and_coordinator_share_partitions_through_a_bad_network(seed):
    chance = random.Random(seed)
    for _ in range(10):
        fleet = Fleet(chance)
        for _ in range(500):
            fleet.step()
            fleet.one_reader()
        fleet.rest()
