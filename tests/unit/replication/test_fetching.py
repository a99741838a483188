"""Fetches between nodes: conversations that name what changed, long polls, answers that are late or lost."""

from __future__ import annotations

import random

import pytest

from ringlog.limits import (
    REPLICA_BACKOFF_MS,
    REPLICA_FETCH_BYTES,
    REPLICA_FETCH_WAIT_MS,
    REPLICA_LULL_BYTES,
    REPLICA_LULL_MS,
    REPLICA_MARK_MS,
    REPLICA_REPLY_MS_MAX,
)
from ringlog.replication import fetcher as fetcher_module
from ringlog.replication.fetcher import Fetcher
from ringlog.replication.leader import Diverged, Serve
from ringlog.replication.messages import Part, ReplicaFetched
from ringlog.replication.replica import Replica
from ringlog.replication.serving import Plan, ServingDesk
from ringlog.replication.view import PartitionView
from tests.support.replica_world import MemoryLog, spans

ROOM = REPLICA_FETCH_BYTES


class Side:
    """The replicas of some partitions on one node."""

    def __init__(self, node: int, partitions: int = 3) -> None:
        self.node = node
        self.replicas = {p: Replica(node, p) for p in range(partitions)}
        self.logs = {p: MemoryLog() for p in range(partitions)}
        self.follow(leader_epoch=1)

    def follow(self, leader_epoch: int) -> None:
        for p, replica in self.replicas.items():
            view = PartitionView(p, 1, leader_epoch, leader_epoch, (1, 2), (1, 2))
            replica.follow(view, self.logs[p], self.node * 100, 0)

    def find(self, partition: int) -> tuple[Replica, MemoryLog]:
        return self.replicas[partition], self.logs[partition]


def pair() -> tuple[Side, ServingDesk, Side, Fetcher]:
    leader, follower = Side(1), Side(2)
    fetcher = Fetcher(2, 200, 0, 1)
    for p, replica in follower.replicas.items():
        fetcher.add(replica, follower.logs[p])
    return leader, ServingDesk(leader.find), follower, fetcher


def answer(plan: Plan, *partitions: int, nbytes: int = 0) -> ReplicaFetched:
    parts = [Part(p, 0, 1, 0, 0, 0, nbytes) for p in partitions]
    return ReplicaFetched(plan.fetch.session, plan.fetch.sequence, plan.lost, parts)


def partitions_of(plan: Plan) -> list[int]:
    return [entry.want.partition for entry in plan.entries]


def test_the_first_fetch_names_all_partitions_and_later_ones_those_that_changed():
    _, desk, follower, fetcher = pair()
    first = fetcher.next_fetch(0, ROOM)
    assert [want.partition for want in first.wants] == [0, 1, 2]
    assert desk.fetch("net", first, 0) == ([], []), "there is nothing to say, so it waits"
    (plan,) = desk.expire(REPLICA_FETCH_WAIT_MS)
    fetcher.take(answer(plan, 1), 0)
    follower.logs[1].append(1, 5)
    second = fetcher.next_fetch(600, ROOM)
    assert [(want.partition, want.fetch_offset) for want in second.wants] == [(1, 5)]
    assert second.sequence == first.sequence + 1


def test_a_fetch_that_waits_is_answered_when_a_partition_grows():
    leader, desk, _, fetcher = pair()
    desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    leader.logs[2].append(1, 3)
    (plan,) = desk.grown(2, 10)
    assert [(entry.want.partition, entry.verdict) for entry in plan.entries] == [(2, Serve(0))]
    assert desk.grown(2, 11) == [], "it was answered"


def committed() -> tuple[Side, ServingDesk, Side, Fetcher]:
    """A record is on both nodes, and committed by the fetch that reports it, which waits since then (3 ms)."""
    leader, desk, follower, fetcher = pair()
    desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    leader.logs[1].append(1, 5)
    leader.logs[1].flush()
    (plan,) = desk.grown(1, 1)
    fetcher.take(answer(plan, 1), 2)
    follower.logs[1].append(1, 5)
    follower.logs[1].flush()
    fetcher.progressed(1)
    plans, moved = desk.fetch("net", fetcher.next_fetch(3, ROOM), 3)
    assert (plans, moved) == ([], [1])
    assert desk.committed(1, 3) and not desk.committed(9, 3)
    return leader, desk, follower, fetcher


def test_a_watermark_that_moved_alone_is_told_a_little_later_and_once():
    _, desk, _, fetcher = committed()
    told_ms = 3 + REPLICA_MARK_MS
    assert desk.next_deadline_ms == told_ms
    assert desk.expire(told_ms - 1) == []
    (plan,) = desk.expire(told_ms)
    assert [(entry.want.partition, entry.verdict) for entry in plan.entries] == [(1, Serve(5))]
    fetcher.take(answer(plan, 1), told_ms)
    assert desk.fetch("net", fetcher.next_fetch(told_ms, ROOM), told_ms) == ([], [])
    assert desk.next_deadline_ms == told_ms + REPLICA_FETCH_WAIT_MS


def test_data_takes_the_watermark_along():
    leader, desk, _, fetcher = committed()
    leader.logs[1].append(1, 7)
    (plan,) = desk.grown(1, 10)
    assert partitions_of(plan) == [1]
    fetcher.take(answer(plan), 10)
    desk.fetch("net", fetcher.next_fetch(11, ROOM), 11)
    assert desk.expire(3 + REPLICA_MARK_MS) == [], "nothing more is to be said of it"


def test_a_watermark_that_is_due_while_no_fetch_waits_goes_with_the_answer_to_the_next():
    leader, desk, _, fetcher = committed()
    leader.logs[2].append(1, 1)
    (plan,) = desk.grown(2, 5)
    fetcher.take(answer(plan, 2), 5)
    late_ms = 4 + REPLICA_MARK_MS
    assert desk.expire(late_ms) == []
    (plan,), _ = desk.fetch("net", fetcher.next_fetch(late_ms, ROOM), late_ms)
    assert 1 in partitions_of(plan)


def test_who_begins_anew_is_told_what_is_committed_though_nothing_is_written():
    _, desk, follower, _ = committed()
    again = Fetcher(2, 200, 0, 2)
    for p, replica in follower.replicas.items():
        again.add(replica, follower.logs[p])
    desk.fetch("net", again.next_fetch(50, ROOM), 50)
    (plan,) = desk.expire(50 + REPLICA_MARK_MS)
    assert partitions_of(plan) == [1]


def test_a_partition_that_is_behind_is_answered_at_once():
    leader, desk, _, fetcher = pair()
    leader.logs[0].append(1, 3)
    (plan,), moved = desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    assert partitions_of(plan) == [0]
    assert moved == []


def test_what_found_no_room_in_an_answer_comes_first_in_the_next_one():
    leader, desk, _, fetcher = pair()
    for p in (0, 1, 2):
        leader.logs[p].append(1, 3)
    (plan,), _ = desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    assert partitions_of(plan) == [0, 1, 2]
    desk.put_back(plan, [1, 2])
    fetcher.take(answer(plan, 0), 0)
    (plan,), _ = desk.fetch("net", fetcher.next_fetch(1, ROOM), 1)
    assert partitions_of(plan) == [1, 2, 0]


def test_one_fetch_is_on_its_way_and_news_overtakes_it():
    _, desk, follower, fetcher = pair()
    first = fetcher.next_fetch(0, ROOM)
    desk.fetch("net", first, 0)
    assert fetcher.next_fetch(1, ROOM) is None
    fetcher.remove(2)
    fetcher.add(follower.replicas[2], follower.logs[2])
    second = fetcher.next_fetch(2, ROOM)
    assert [want.partition for want in second.wants] == [2] and second.forget == [2]
    plans, _ = desk.fetch("net", second, 2)
    assert [plan.fetch for plan in plans] == [first], "the one that waited is answered, empty"
    assert plans[0].entries == []
    assert fetcher.take(answer(plans[0]), 0) == []
    fetcher.add(follower.replicas[0], follower.logs[0])
    assert fetcher.next_fetch(3, ROOM) is not None
    fetcher.add(follower.replicas[0], follower.logs[0])
    assert fetcher.next_fetch(4, ROOM) is None, "two are under way"


@pytest.mark.parametrize("seed", range(20))
def test_while_nothing_is_to_be_sent_nothing_is_due(seed):
    """Otherwise a shard would look for something to do without a rest, for as long as its leader does not answer."""
    dice, now_ms = random.Random(seed), 0
    _, _, follower, fetcher = pair()
    fetches: list = []
    for _ in range(300):
        now_ms += dice.choice((0, 1, 5, 30, 400))
        p = dice.randrange(3)
        match dice.randrange(8):
            case 0:
                fetcher.add(follower.replicas[p], follower.logs[p])
            case 1:
                fetcher.remove(p)
            case 2:
                fetcher.pause(p, now_ms)
            case 3:
                follower.logs[p].append(1, 1)
                fetcher.progressed(p)
            case 4:
                follower.logs[p].flush()
                fetcher.progressed(p)
            case 5 if fetches:
                plan = Plan("net", fetches.pop(0), False, [])
                fetcher.take(answer(plan, p, nbytes=dice.choice((0, REPLICA_LULL_BYTES))), now_ms)
            case 6 if dice.random() < 0.2:
                fetcher.failed(now_ms)
        while (fetch := fetcher.next_fetch(now_ms, ROOM)) is not None:
            fetches.append(fetch)
        fetcher.report()
        due_ms = fetcher.due_ms()
        assert due_ms is None or due_ms > now_ms


def test_after_a_small_answer_the_next_fetch_waits_for_the_flush_and_reports_it():
    leader, desk, follower, fetcher = pair()
    leader.logs[0].append(1, 4)
    leader.logs[0].flush()
    (plan,), _ = desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    fetcher.take(answer(plan, 0, nbytes=REPLICA_LULL_BYTES - 1), 10)
    follower.logs[0].add(spans((0, 3, 1)))
    assert fetcher.next_fetch(10, ROOM) is None and fetcher.due_ms() == 10 + REPLICA_LULL_MS
    follower.logs[0].flush()
    fetcher.progressed(0)
    fetch = fetcher.next_fetch(11, ROOM)
    assert [(want.fetch_offset, want.held_offset) for want in fetch.wants] == [(4, 4)]
    assert fetcher.report() is None, "the fetch has said it"
    _, moved = desk.fetch("net", fetch, 11)
    assert moved == [0] and leader.replicas[0].high_watermark == 4


def test_a_disk_that_is_slow_holds_up_no_fetch_for_long():
    leader, desk, follower, fetcher = pair()
    leader.logs[0].append(1, 4)
    (plan,), _ = desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    fetcher.take(answer(plan, 0), 10)
    follower.logs[0].add(spans((0, 3, 1)))
    assert fetcher.next_fetch(10 + REPLICA_LULL_MS - 1, ROOM) is None
    assert fetcher.next_fetch(10 + REPLICA_LULL_MS, ROOM) is not None


def test_a_new_partition_waits_for_no_flush():
    leader, desk, follower, fetcher = pair()
    leader.logs[0].append(1, 4)
    (plan,), _ = desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    fetcher.take(answer(plan, 0), 10)
    follower.logs[0].add(spans((0, 3, 1)))
    fetcher.add(follower.replicas[1], follower.logs[1])
    assert fetcher.next_fetch(10, ROOM) is not None


def pair_with_four_records() -> tuple[Side, ServingDesk, Side, Fetcher]:
    """A pair whose follower has appended what its leader holds, and flushed none of it."""
    leader, desk, follower, fetcher = pair()
    leader.logs[0].append(1, 4)
    leader.logs[0].flush()
    (plan,), _ = desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    fetcher.take(answer(plan, 0, nbytes=REPLICA_LULL_BYTES), 0)
    follower.logs[0].add(spans((0, 3, 1)))
    return leader, desk, follower, fetcher


def test_what_is_held_is_reported_beside_the_fetch_and_commits():
    leader, desk, follower, fetcher = pair_with_four_records()
    desk.fetch("net", fetcher.next_fetch(1, ROOM), 1)
    assert fetcher.report() is None
    follower.logs[0].flush()
    fetcher.progressed(0)
    report = fetcher.report()
    assert [(want.partition, want.held_offset) for want in report.wants] == [(0, 4)]
    assert desk.held(report, 2) == [0]
    assert leader.replicas[0].high_watermark == 4
    assert fetcher.report() is None


def test_a_report_that_is_lost_is_said_again_by_the_next_fetch():
    leader, desk, follower, fetcher = pair_with_four_records()
    waiting = fetcher.next_fetch(1, ROOM)
    desk.fetch("net", waiting, 1)
    follower.logs[0].flush()
    fetcher.progressed(0)
    assert fetcher.report() is not None  # and nobody hears it
    assert leader.replicas[0].high_watermark == 0
    fetcher.take(answer(Plan("net", waiting, False, [])), 500)
    _, moved = desk.fetch("net", fetcher.next_fetch(501, ROOM), 501)
    assert moved == [0] and leader.replicas[0].high_watermark == 4


def test_nothing_is_asked_for_without_room():
    _, _, _, fetcher = pair()
    assert fetcher.next_fetch(0, 0) is None
    assert fetcher.next_fetch(0, 1000).bytes_max == 1000


def test_an_answer_that_is_lost_is_given_up_and_the_conversation_begins_anew():
    _, desk, _, fetcher = pair()
    first = fetcher.next_fetch(0, ROOM)
    desk.fetch("net", first, 0)
    late = REPLICA_FETCH_WAIT_MS + REPLICA_REPLY_MS_MAX
    assert fetcher.due_ms() == late
    assert fetcher.next_fetch(late - 1, ROOM) is None
    second = fetcher.next_fetch(late, ROOM)
    assert (second.session, second.sequence) == (first.session + 1, 0)
    assert len(second.wants) == 3
    assert fetcher.take(ReplicaFetched(first.session, 0, False, []), 0) is None, "nobody waits for it"
    desk.fetch("net", second, late)
    assert desk.fetch("net", first, late) == ([], []), "an old fetch that comes late is not answered"
    assert desk.fetch("net", second, late) == ([], []), "nor one that comes twice"


def test_a_leader_that_does_not_know_the_conversation_says_so():
    leader, _, _, fetcher = pair()
    first = fetcher.next_fetch(0, ROOM)
    fetcher.take(ReplicaFetched(first.session, first.sequence, False, []), 0)
    second = fetcher.next_fetch(1, ROOM)
    (plan,), _ = ServingDesk(leader.find).fetch("net", second, 1)
    assert plan.lost
    assert fetcher.take(answer(plan), 0) is None
    third = fetcher.next_fetch(2, ROOM)
    assert (third.session, third.sequence, len(third.wants)) == (second.session + 1, 0, 3)


def test_an_epoch_that_is_over_is_told_at_once():
    leader, desk, _, fetcher = pair()
    desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    leader.follow(leader_epoch=2)
    (plan,) = desk.grown(1, 5)
    assert plan.entries[0].verdict.code == "FENCED_LEADER_EPOCH"


def test_a_partition_that_cannot_be_served_is_asked_for_again_a_little_later():
    _, _, _, fetcher = pair()
    first = fetcher.next_fetch(0, ROOM)
    fetcher.take(ReplicaFetched(first.session, 0, False, [Part(1, 9, 1, 0, 0, 0)]), 0)
    fetcher.pause(1, 10)
    second = fetcher.next_fetch(10, ROOM)
    assert second.wants == [] and second.wait_ms == REPLICA_BACKOFF_MS
    assert fetcher.due_ms() == 10 + REPLICA_BACKOFF_MS
    assert fetcher.next_fetch(11, ROOM) is None
    third = fetcher.next_fetch(10 + REPLICA_BACKOFF_MS, ROOM)
    assert [want.partition for want in third.wants] == [1], "it does not wait for the answer to the second"


def test_a_leader_that_cannot_be_reached_is_asked_again_after_a_pause():
    _, _, _, fetcher = pair()
    fetcher.next_fetch(0, ROOM)
    fetcher.failed(5)
    assert fetcher.next_fetch(6, ROOM) is None
    assert fetcher.next_fetch(5 + REPLICA_BACKOFF_MS, ROOM).sequence == 0


def test_sessions_of_a_process_that_died_are_forgotten():
    leader, desk, _, fetcher = pair()
    first = fetcher.next_fetch(0, ROOM)
    desk.fetch("net", first, 0)
    desk.leave(lambda asker: asker == "net")
    leader.logs[0].append(1, 1)
    assert desk.grown(0, 1) == []
    assert desk.next_deadline_ms is None


def test_a_node_that_is_registered_anew_says_so_and_begins_anew():
    leader, desk, _, fetcher = pair()
    desk.fetch("a", fetcher.next_fetch(0, ROOM), 0)
    fetcher.registered(200)
    assert fetcher.next_fetch(1, ROOM) is None, "nothing changed"
    fetcher.registered(201)
    again = fetcher.next_fetch(1, ROOM)
    assert (again.node_epoch, again.sequence, len(again.wants)) == (201, 0, 3)
    desk.fetch("a", again, 1)
    assert leader.replicas[0].leader.followers[2].node_epoch == 201


def test_a_fetch_names_a_bounded_number_of_partitions_and_the_next_one_the_rest(monkeypatch):
    monkeypatch.setattr(fetcher_module, "FETCH_PARTITIONS_MAX", 2)
    _, _, _, fetcher = pair()
    first, second = fetcher.next_fetch(0, ROOM), fetcher.next_fetch(0, ROOM)
    assert [want.partition for want in first.wants] == [0, 1]
    assert [want.partition for want in second.wants] == [2]
    assert fetcher.next_fetch(0, ROOM) is None


def test_a_position_that_came_before_its_leader_took_office_counts_when_it_is_looked_at_again():
    leader, desk, follower, fetcher = pair()
    for side in (leader, follower):
        side.logs[1].append(1, 5)
        side.logs[1].flush()
    follower.follow(leader_epoch=2)
    for p, replica in follower.replicas.items():
        fetcher.add(replica, follower.logs[p])
    (plan,), moved = desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    assert moved == [] and {type(entry.verdict).__name__ for entry in plan.entries} == {"UnknownLeaderEpoch"}
    fetcher.take(answer(plan), 0)  # all are asked for again, a little later
    leader.follow(leader_epoch=2)
    assert desk.grown(1, 1) == [], "nobody waits"
    (plan,), moved = desk.fetch("net", fetcher.next_fetch(2, ROOM), 2)
    assert (moved, plan.moved, leader.replicas[1].high_watermark) == ([], (1,), 5)


def test_a_follower_whose_log_begins_too_early_is_told_once():
    leader, desk, follower, fetcher = pair()
    for side in (leader, follower):
        side.logs[1].add(spans((0, 9, 1)))
        side.logs[1].flush()
    leader.logs[1].delete_below(5)
    (plan,), _ = desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    assert partitions_of(plan) == [1]
    fetcher.take(answer(plan, 1), 0)
    assert desk.fetch("net", fetcher.next_fetch(1, ROOM), 1)[0] == [], "it takes a while to be durable there"
    follower.logs[1].delete_below(5)
    fetcher.progressed(1)
    report = fetcher.report()
    assert [want.start_offset for want in report.wants] == [5]
    desk.held(report, 2)
    assert leader.replicas[1].leader.is_deleted(5, leader.logs[1])


def test_under_a_new_epoch_it_is_told_again():
    leader, desk, follower, fetcher = pair()
    for side in (leader, follower):
        side.logs[1].add(spans((0, 9, 1)))
        side.logs[1].flush()
    leader.logs[1].delete_below(5)
    (plan,), _ = desk.fetch("net", fetcher.next_fetch(0, ROOM), 0)
    fetcher.take(answer(plan, 1), 0)
    for side in (leader, follower):
        side.follow(leader_epoch=2)
    fetcher.add(follower.replicas[1], follower.logs[1])
    (plan,), _ = desk.fetch("net", fetcher.next_fetch(1, ROOM), 1)
    assert partitions_of(plan) == [1]


def test_who_was_cut_first_is_told_what_is_committed_too():
    _, desk, follower, _ = committed()
    follower.logs[1].append(1, 2)  # more than the leader has
    again = Fetcher(2, 200, 0, 2)
    for p, replica in follower.replicas.items():
        again.add(replica, follower.logs[p])
    (plan,), _ = desk.fetch("net", again.next_fetch(50, ROOM), 50)
    assert [type(entry.verdict) for entry in plan.entries] == [Diverged]
    again.take(answer(plan, 1), 51)
    follower.logs[1].truncate(5)
    again.add(follower.replicas[1], follower.logs[1])
    plans, _ = desk.fetch("net", again.next_fetch(52, ROOM), 52)
    told = [partitions_of(plan) for plan in plans]
    for now in range(53, 53 + 3 * REPLICA_FETCH_WAIT_MS):
        told += [partitions_of(plan) for plan in desk.expire(now)]
    assert [1] in told, f"never told: {told}"
