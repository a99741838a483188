"""The coordinator, step by step: joining, giving up, being fenced, coming back under a name, committing, expiring."""

from __future__ import annotations

import pytest

from ringlog.coordination.catalogue import TopicInfo
from ringlog.coordination.coordinator import EXPIRY_CHECK_MS, EXPIRY_PAUSE_MS, GroupCoordinator
from ringlog.coordination.describe import summaries
from ringlog.coordination.records import decode_record, encode_record
from ringlog.errors import (
    GroupNotEmpty,
    InstanceFenced,
    InvalidRequest,
    LimitExceeded,
    MemberFenced,
    UnknownGroup,
)
from ringlog.limits import OFFSETS_EXPIRY_MS
from ringlog.model import LogEnds, TopicPartition
from ringlog.net.group_messages import (
    JOIN,
    LEAVE,
    GroupDeleteRequest,
    GroupDescribeRequest,
    GroupHeartbeatRequest,
    GroupResetRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetToCommit,
    PartitionLag,
    TopicLag,
    TopicPartitions,
)
from ringlog.net.wire_errors import NUMBERS


class Desk:
    """A coordinator, its log, and what it has answered."""

    def __init__(self, **topics: int) -> None:
        self.catalogue = {name: TopicInfo(at, count) for at, (name, count) in enumerate(topics.items(), 1)}
        self.coordinator = GroupCoordinator(self.catalogue)
        self.coordinator.loaded(0)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[object, object] = {}

    def keep(self, outcome):
        self.log += [encode_record(record) for record in outcome.records]
        self.answers.update({reply.ticket: reply.body for reply in outcome.replies})
        return outcome

    def beat(self, member, epoch, owned=None, *, now=0, wait=0, ticket=None, **more):
        if epoch == JOIN:
            more = {"topics": ["t"], **more}
        held = None if owned is None else [TopicPartitions("t", sorted(owned))]
        request = GroupHeartbeatRequest("g", member, epoch, held, wait, **more)
        ticket = ticket or (member, object())
        self.keep(self.coordinator.heartbeat(ticket, request, now))
        return self.answers.get(ticket)

    def commit(self, member, epoch, sequence, at=None, *, now=0, **offsets):
        some = [OffsetToCommit("t", index, offset) for index, offset in (at or {}).items()]
        request = OffsetCommitRequest("g", member, epoch, sequence, some)
        self.keep(self.coordinator.commit("commit", request, now))
        return self.answers["commit"].errors

    def committed(self):
        self.keep(self.coordinator.fetch_offsets("fetch", OffsetFetchRequest("g")))
        return {row.partition: row.offset for row in self.answers["fetch"].offsets}

    def restart(self, now=0):
        """A coordinator that knows what the log says."""
        self.coordinator = GroupCoordinator(self.catalogue)
        for key, value in self.log:
            self.coordinator.image.replay(decode_record(key, value))
        self.coordinator.loaded(now)

    @property
    def group(self):
        return self.coordinator.image.groups["g"]


def indexes(reply):
    return [index for some in reply.assigned for index in some.partitions]


def test_the_first_member_gets_everything():
    desk = Desk(t=4)
    assert indexes(desk.beat("a", JOIN)) == [0, 1, 2, 3]


def test_what_moves_is_first_given_up_and_then_given():
    desk = Desk(t=4)
    first = desk.beat("a", JOIN)
    assert desk.beat("a", first.member_epoch, range(4), wait=3000, ticket="poll") is None, "nothing is new"
    second = desk.beat("b", JOIN)
    assert indexes(second) == [], "the other still holds all"
    told = desk.answers["poll"]
    assert indexes(told) == [0, 1], "the one that waits is told at once"
    assert desk.beat("b", second.member_epoch, [], wait=3000, ticket="b polls") is None
    assert desk.beat("a", told.member_epoch, range(4)).assigned is None, "it is not done giving up"
    assert "b polls" not in desk.answers
    desk.beat("a", told.member_epoch, [0, 1])
    assert indexes(desk.answers["b polls"]) == [2, 3]
    assert desk.group.stable


def test_a_late_heartbeat_of_an_older_epoch_gives_nothing_up():
    desk = Desk(t=2)
    late = desk.beat("a", JOIN).member_epoch
    desk.beat("b", JOIN)
    again = desk.beat("a", late, [])
    assert again.member_epoch > late
    assert indexes(again) == [0], "it is told where it stands"
    assert len(desk.group.members["a"].holdings) == 2, "what it holds is not free yet"


def test_what_is_to_come_back_before_it_was_given_up_comes_back_as_new():
    desk = Desk(t=2)
    before = desk.beat("a", JOIN)
    other = desk.beat("b", JOIN)
    told = desk.beat("a", before.member_epoch, None)
    assert indexes(told) == [0]
    desk.beat("b", LEAVE)
    assert desk.group.members["a"].target == {TopicPartition("t", 0), TopicPartition("t", 1)}
    # The member may be in the middle of giving it up: it still is to do so, and to say so.
    assert desk.group.members["a"].holdings[TopicPartition("t", 1)].revoking
    again = desk.beat("a", told.member_epoch, None)
    epoch = again.member_epoch if again.assigned is not None else told.member_epoch
    assert desk.commit("a", epoch, 5, {1: 50}) == [0], "what it did until now counts"
    back = desk.beat("a", epoch, [0])
    assert indexes(back) == [0, 1]
    assert desk.group.stable
    # A commit from before, delayed until now, would set the offset back: the member began anew there.
    assert desk.commit("a", epoch, 6, {1: 7}) == [NUMBERS["MEMBER_FENCED"]]
    assert desk.commit("a", back.member_epoch, 7, {1: 60}) == [0]
    assert desk.committed() == {1: 60}
    assert other.member_epoch < back.member_epoch


def test_lag_of_a_group_counts_what_is_held_and_what_is_committed():
    desk = Desk(t=3, u=1)
    member = desk.beat("a", JOIN)
    desk.commit("a", member.member_epoch, 1, {0: 40, 1: 100})
    ends = {TopicPartition("t", 0): LogEnds(0, 100, [(0, 1_000), (30, 5_000)])}
    ends[TopicPartition("t", 1)] = LogEnds(0, 90, [(0, 1_000)])
    desk.keep(desk.coordinator.describe("d", GroupDescribeRequest("g"), ends.get, 6_000))
    (lags,) = desk.answers["d"].lags
    assert lags == TopicLag(
        "t",
        [PartitionLag(0, 0, 100, 60, 1_000), PartitionLag(1, 0, 90, 0, 0), PartitionLag(2, -1, -1, -1, -1)],
    )
    (listed,) = summaries(desk.coordinator.image, desk.catalogue, ends.get, 6_000)
    assert (listed.lag, listed.lag_ms) == (60, 1_000)


def test_a_heartbeat_without_news_is_answered_after_its_wait():
    desk = Desk(t=1)
    epoch = desk.beat("a", JOIN).member_epoch
    assert desk.beat("a", epoch, [0], wait=3000, now=100, ticket="poll") is None
    assert desk.coordinator.next_due_ms == 3100
    desk.keep(desk.coordinator.tick(3100))
    assert desk.answers["poll"].assigned is None


@pytest.mark.parametrize(("member", "epoch", "owned"), [("x", 1, []), ("a", 99, []), ("a", 2, [0, 7])])
def test_a_member_that_cannot_be_right_is_fenced(member, epoch, owned):
    desk = Desk(t=2)
    assert desk.beat("a", JOIN).member_epoch == 2
    with pytest.raises(MemberFenced):
        desk.beat(member, epoch, owned)
    assert desk.group.members.keys() == {"a"}


def test_a_fenced_member_rejoins_and_has_what_it_had():
    desk = Desk(t=2)
    first = desk.beat("a", JOIN)
    again = desk.beat("a", JOIN)
    assert indexes(again) == [0, 1]
    assert again.member_epoch > first.member_epoch
    assert desk.commit("a", first.member_epoch, 1, {0: 5}) == [NUMBERS["MEMBER_FENCED"]]


def test_a_silent_member_is_dead_after_its_session_timeout():
    desk = Desk(t=2)
    desk.beat("a", JOIN, session_timeout_ms=5000)
    other = desk.beat("b", JOIN, now=3000)
    desk.beat("b", other.member_epoch, [], wait=3000, now=4000, ticket="poll")
    desk.keep(desk.coordinator.tick(4999))
    assert desk.group.members.keys() == {"a", "b"}
    desk.keep(desk.coordinator.tick(5000))
    assert desk.group.members.keys() == {"b"}
    assert indexes(desk.answers["poll"]) == [0, 1]


def test_a_member_whose_process_is_gone_is_dead_soon():
    desk = Desk(t=1)
    desk.beat("a", JOIN)
    desk.coordinator.clients_left(lambda ticket: ticket[0] == "a", 100)
    desk.keep(desk.coordinator.tick(1099))
    assert desk.group.members
    desk.keep(desk.coordinator.tick(1100))
    assert not desk.group.members


def test_a_member_that_reconnects_is_not_dead():
    desk = Desk(t=1)
    epoch = desk.beat("a", JOIN).member_epoch
    desk.coordinator.clients_left(lambda ticket: ticket[0] == "a", 100)
    desk.beat("a", epoch, [0], now=600)
    desk.keep(desk.coordinator.tick(30_000))
    assert desk.group.members


def test_whoever_leaves_frees_what_it_had_at_once():
    desk = Desk(t=2)
    desk.beat("a", JOIN)
    desk.beat("b", JOIN)
    desk.beat("a", LEAVE)
    assert desk.group.holders == dict.fromkeys([("t", 0), ("t", 1)], "b")


def test_a_restarted_instance_takes_over_and_nothing_moves():
    desk = Desk(t=4)
    desk.beat("a1", JOIN, instance_id="a")
    other = desk.beat("b1", JOIN, instance_id="b")
    told = desk.beat("a1", desk.group.members["a1"].epoch, [0, 1])
    other = desk.beat("b1", other.member_epoch, [])
    epoch = desk.group.value.epoch
    again = desk.beat("a2", JOIN, instance_id="a")
    assert indexes(again) == [0, 1]
    assert desk.group.value.epoch == epoch, "no new target"
    assert desk.group.members["b1"].epoch == other.member_epoch, "nobody else hears of it"
    assert told is not None


def test_the_process_that_was_replaced_is_told_to_stop():
    desk = Desk(t=1)
    epoch = desk.beat("a1", JOIN, instance_id="a").member_epoch
    desk.beat("a2", JOIN, instance_id="a")
    with pytest.raises(InstanceFenced):
        desk.beat("a1", epoch, [0], instance_id="a")
    with pytest.raises(InstanceFenced):
        desk.beat("a1", JOIN, instance_id="a")


def test_new_partitions_are_given_out():
    desk = Desk(t=1)
    epoch = desk.beat("a", JOIN).member_epoch
    desk.beat("a", epoch, [0], wait=3000, ticket="poll")
    desk.keep(desk.coordinator.follow({"t": TopicInfo(1, 3)}, 0))
    assert indexes(desk.answers["poll"]) == [0, 1, 2]


def test_a_new_topic_that_fits_the_pattern_is_read():
    desk = Desk(t1=1)
    desk.beat("a", JOIN, topics=None, pattern="t*")
    desk.keep(desk.coordinator.follow(desk.catalogue | {"t2": TopicInfo(9, 1), "u": TopicInfo(8, 1)}, 0))
    assert {tp.topic for tp in desk.group.members["a"].told} == {"t1", "t2"}


def test_topics_that_nobody_reads_change_nothing():
    desk = Desk(t=1)
    desk.beat("a", JOIN)
    assert desk.coordinator.follow(desk.catalogue | {"u": TopicInfo(8, 1)}, 0).records == []


def test_a_group_survives_its_coordinator_without_a_rebalance():
    desk = Desk(t=4)
    first, second = desk.beat("a", JOIN), desk.beat("b", JOIN)
    first = desk.beat("a", first.member_epoch, [0, 1])
    desk.beat("a", first.member_epoch, [0, 1])
    second = desk.beat("b", second.member_epoch, [])
    desk.commit("b", second.member_epoch, 1, {2: 7})
    before = desk.group
    desk.restart(now=40_000)
    assert desk.group == before
    assert desk.coordinator.follow(desk.catalogue, 40_000).records == []
    desk.keep(desk.coordinator.tick(80_000))
    assert desk.group.members.keys() == {"a", "b"}, "sessions begin anew"
    assert desk.beat("b", second.member_epoch, [2, 3], now=80_000).assigned is None
    assert desk.committed() == {2: 7}


def test_only_the_holder_commits():
    desk = Desk(t=2)
    epoch = desk.beat("a", JOIN).member_epoch
    other = desk.beat("b", JOIN).member_epoch
    assert desk.commit("a", epoch, 1, {0: 5, 1: 6}) == [0, 0], "also what it is about to give up"
    assert desk.commit("b", other, 1, {1: 1}) == [NUMBERS["MEMBER_FENCED"]]
    with pytest.raises(MemberFenced):
        desk.commit("x", epoch, 1, {0: 1})
    assert desk.committed() == {0: 5, 1: 6}


def test_a_delayed_commit_does_not_go_back():
    desk = Desk(t=1)
    epoch = desk.beat("a", JOIN).member_epoch
    assert desk.commit("a", epoch, 2, {0: 20}) == [0]
    assert desk.commit("a", epoch, 1, {0: 10}) == [0]
    assert desk.committed() == {0: 20}
    assert desk.commit("a", epoch, 3, {0: 5}) == [0], "a member may go back if it wants to"
    assert desk.committed() == {0: 5}


def test_without_members_anyone_commits():
    desk = Desk(t=1)
    assert desk.commit("tool", LEAVE, 1, {0: 3, 9: 1}) == [0, NUMBERS["UNKNOWN_TOPIC"]]
    desk.beat("a", JOIN)
    with pytest.raises(GroupNotEmpty):
        desk.commit("tool", LEAVE, 2, {0: 4})


def test_offsets_of_a_topic_that_was_made_anew_mean_nothing():
    desk = Desk(t=1)
    desk.commit("tool", LEAVE, 1, {0: 3})
    desk.coordinator.follow({"t": TopicInfo(77, 1)}, 0)
    assert desk.committed() == {}


def test_offsets_are_set_back_only_without_members():
    desk = Desk(t=1)
    epoch = desk.beat("a", JOIN).member_epoch
    desk.commit("a", epoch, 1, {0: 20})
    request = GroupResetRequest("g", [OffsetToCommit("t", 0, 5)])
    with pytest.raises(GroupNotEmpty):
        desk.coordinator.reset(None, request, 0)
    desk.beat("a", LEAVE)
    desk.keep(desk.coordinator.reset("reset", request, 0))
    assert desk.committed() == {0: 5}


def test_a_deleted_group_is_gone_also_after_a_restart():
    desk = Desk(t=1)
    desk.beat("a", JOIN)
    with pytest.raises(GroupNotEmpty):
        desk.coordinator.delete(None, GroupDeleteRequest("g"))
    desk.beat("a", LEAVE)
    desk.commit("tool", LEAVE, 1, {0: 3})
    desk.keep(desk.coordinator.delete("delete", GroupDeleteRequest("g")))
    assert desk.answers["delete"].offsets == 1
    desk.restart()
    assert not desk.coordinator.image.groups
    with pytest.raises(UnknownGroup):
        desk.coordinator.describe(None, GroupDescribeRequest("g"), lambda tp: None, 0)


def test_offsets_of_dead_groups_expire_and_those_of_living_do_not():
    desk = Desk(t=1)
    epoch = desk.beat("a", JOIN).member_epoch
    desk.commit("a", epoch, 1, {0: 3})
    desk.beat("a", epoch, [0], now=OFFSETS_EXPIRY_MS)
    desk.keep(desk.coordinator.tick(OFFSETS_EXPIRY_MS + 1))
    assert desk.committed() == {0: 3}
    left_ms = OFFSETS_EXPIRY_MS + 2
    desk.beat("a", LEAVE, now=left_ms)
    assert desk.coordinator.next_due_ms <= left_ms + EXPIRY_CHECK_MS, "somebody will look"
    desk.keep(desk.coordinator.tick(left_ms + OFFSETS_EXPIRY_MS - 1))
    assert desk.committed() == {0: 3}
    desk.keep(desk.coordinator.tick(left_ms + OFFSETS_EXPIRY_MS + EXPIRY_CHECK_MS))
    assert not desk.coordinator.image.groups
    desk.restart()
    assert not desk.coordinator.image.groups


def test_when_very_many_groups_expire_each_look_takes_some_of_them(monkeypatch):
    monkeypatch.setattr("ringlog.coordination.coordinator.EXPIRED_RECORDS_MAX", 10)
    desk = Desk(t=1)
    for number in range(20):
        some = OffsetCommitRequest(f"g{number}", "tool", LEAVE, 1, [OffsetToCommit("t", 0, 3)])
        desk.keep(desk.coordinator.commit(None, some, 0))
    now_ms, looks = OFFSETS_EXPIRY_MS + EXPIRY_CHECK_MS, []
    while desk.coordinator.image.groups:
        outcome = desk.coordinator.tick(now_ms)
        looks.append(len(outcome.records))
        desk.keep(outcome)
        now_ms += EXPIRY_PAUSE_MS
        assert len(looks) < 10
    assert sum(looks) == 40 and max(looks) <= 11, "an offset and its group, for each"
    desk.restart()
    assert not desk.coordinator.image.groups


def test_offsets_of_a_topic_that_is_no_more_expire_in_a_group_that_lives_on():
    desk = Desk(t=1, gone=1, anew=1)
    epoch = desk.beat("a", JOIN, topics=["t", "gone", "anew"]).member_epoch
    some = [OffsetToCommit(topic, 0, 3) for topic in ("t", "gone", "anew")]
    desk.keep(desk.coordinator.commit(None, OffsetCommitRequest("g", "a", epoch, 1, some), 0))
    there = {"t": desk.catalogue["t"], "anew": TopicInfo(77, 1)}
    desk.keep(desk.coordinator.follow(there, 0))
    epoch = desk.beat("a", desk.group.members["a"].epoch, now=OFFSETS_EXPIRY_MS - 1).member_epoch
    desk.keep(desk.coordinator.tick(OFFSETS_EXPIRY_MS - 1))
    assert len(desk.group.offsets) == 3, "they may be of use to somebody until then"
    desk.beat("a", epoch, now=OFFSETS_EXPIRY_MS - 1 + EXPIRY_CHECK_MS)
    desk.keep(desk.coordinator.tick(OFFSETS_EXPIRY_MS - 1 + EXPIRY_CHECK_MS))
    assert list(desk.group.offsets) == [TopicPartition("t", 0)]
    desk.catalogue = there
    desk.restart()
    assert (list(desk.group.offsets), list(desk.group.members)) == ([TopicPartition("t", 0)], ["a"])


def test_a_place_that_keeps_all_the_groups_it_can_takes_no_more_from_whoever_asks(monkeypatch):
    monkeypatch.setattr("ringlog.coordination.coordinator.GROUPS_PER_PARTITION_MAX", 1)
    desk = Desk(t=1)
    desk.commit("tool", LEAVE, 1, {0: 3})
    some = [OffsetToCommit("t", 0, 5)]
    coordinator = desk.coordinator
    for ask in (
        lambda: coordinator.commit(None, OffsetCommitRequest("more", "tool", LEAVE, 1, some), 0),
        lambda: coordinator.reset(None, GroupResetRequest("more", some), 0),
        lambda: coordinator.heartbeat(None, GroupHeartbeatRequest("more", "m", JOIN, topics=["t"]), 0),
    ):
        with pytest.raises(LimitExceeded):
            ask()
    assert list(coordinator.image.groups) == ["g"]
    assert desk.commit("tool", LEAVE, 2, {0: 4}) == [0], "those that are there go on"


def test_a_description_shows_what_moves():
    desk = Desk(t=2)
    desk.beat("a", JOIN, client_id="one")
    desk.beat("b", JOIN, now=500)
    desk.keep(desk.coordinator.describe("d", GroupDescribeRequest("g"), lambda tp: None, 700))
    told = desk.answers["d"]
    assert (told.state, told.assignor, [m.client_id for m in told.members]) == (
        "reconciling",
        "sticky",
        ["one", ""],
    )
    first, second = told.members
    assert (indexes(first), first.heard_ms_ago) == ([0], 700)
    assert first.revoking == second.target == [TopicPartitions("t", [1])]


@pytest.mark.parametrize(
    "wrong", [{"topics": []}, {"assignor": "fair"}, {"session_timeout_ms": 1}, {"session_timeout_ms": 10**9}]
)
def test_a_join_that_makes_no_sense_is_refused_and_leaves_nothing(wrong):
    desk = Desk(t=1)
    with pytest.raises(InvalidRequest):
        desk.beat("a", JOIN, **wrong)
    assert not desk.coordinator.image.groups
