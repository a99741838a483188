"""Groups on a real node: partitions are shared, moved and taken over, and nobody loses what is committed."""

from __future__ import annotations

import gc
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import ringlog
from ringlog.client.commits import OffsetAndMetadata
from ringlog.errors import InstanceFenced, InvalidRequest, OffsetOutOfRange, RequestTimeout, UnknownTopic
from ringlog.model import TopicPartition
from tests.support.node import NodeProcess
from tests.support.patience import stretched

PARTITIONS = 6


@pytest.fixture(scope="module")
def node():
    with ringlog.embedded(shards=2) as running:
        yield running


class Team:
    """Consumers of one group, with all that was called back."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic, self.group = bootstrap, topic, f"team-{topic}"
        self.heard: list[tuple[str, str, list[int]]] = []
        self.consumers: list[ringlog.Consumer] = []
        self.producer = ringlog.Producer(bootstrap=bootstrap)
        with ringlog.Admin(bootstrap=bootstrap) as admin:
            admin.create_topic(topic, PARTITIONS)

    def fill(self, count: int) -> None:
        for number in range(count):
            self.producer.produce(self.topic, b"%d" % number, partition=number % PARTITIONS)
        self.producer.flush()

    def consumer(self, name: str = "", *, pattern: str | None = None, **settings) -> ringlog.Consumer:
        made = ringlog.Consumer(
            bootstrap=self.bootstrap, group_id=self.group, **{"auto_offset_reset": "earliest", **settings}
        )
        self.consumers.append(made)

        def hear(what: str):
            return lambda tps: self.heard.append((name, what, [tp.partition for tp in tps]))

        topics = [] if pattern else [self.topic]
        made.subscribe(
            topics,
            pattern=pattern,
            on_assigned=hear("assigned"),
            on_revoked=hear("revoked"),
            on_lost=hear("lost"),
        )
        return made

    def poll_until(self, condition, *consumers: ringlog.Consumer, within_s: float = 10.0) -> list:
        """Poll in turn until something is so; all records on the way."""
        records, until = [], time.monotonic() + stretched(within_s)
        while not condition(records):
            assert time.monotonic() < until, self.heard
            for one in consumers:
                records += one.poll(20)
        return records

    def settle(self, *consumers: ringlog.Consumer, partitions: int = PARTITIONS) -> list:
        """Poll until every partition has its reader, evenly."""

        def even(_records) -> bool:
            counts = [len(one.assignment()) for one in consumers]
            return sum(counts) == partitions and max(counts) - min(counts) <= 1

        return self.poll_until(even, *consumers)

    def close(self) -> None:
        for one in self.consumers:
            one.close()
        self.producer.close()


@pytest.fixture
def team(node, request):
    made = Team(node.bootstrap, re.sub(r"\W", "-", request.node.name)[-100:])
    yield made
    made.close()


def test_members_share_the_partitions_and_only_what_must_moves(team):
    first = team.consumer("a")
    team.settle(first)
    second = team.consumer("b")
    team.settle(first, second)
    kept, moved = (sorted(tp.partition for tp in one.assignment()) for one in (first, second))
    assert sorted(kept + moved) == list(range(PARTITIONS)), "nobody reads what another one has"
    assert team.heard == [
        ("a", "assigned", [0, 1, 2, 3, 4, 5]),
        ("a", "revoked", moved),
        ("b", "assigned", moved),
    ], "what stays is taken from nobody and given to nobody again"
    second.close()
    team.settle(first)
    assert team.heard[3:] == [("b", "revoked", moved), ("a", "assigned", moved)]


def test_every_record_is_read_once_while_members_come_and_go(team):
    first = team.consumer("a")
    team.fill(600)
    records = team.poll_until(lambda found: len(found) > 100, first)
    second = team.consumer("b")
    records += team.settle(first, second)
    team.fill(600)
    records += team.poll_until(lambda found: len(found) > 300, first, second)
    first.close()
    total = len(records)
    records += team.poll_until(lambda found: total + len(found) >= 1200, second)
    records += second.poll(200)
    counts = Counter((record.partition, record.offset) for record in records)
    assert len(counts) == 1200
    assert set(counts.values()) == {1}, "exactly once where no one died"


def test_a_new_consumer_goes_on_where_the_group_stopped(team):
    team.fill(60)
    first = team.consumer(enable_auto_commit=False)
    team.poll_until(lambda found: len(found) == 60, first)
    first.commit({(team.topic, 0): OffsetAndMetadata(4, "half"), (team.topic, 1): 10})
    assert first.committed((team.topic, 0)) == OffsetAndMetadata(4, "half")
    assert first.committed((team.topic, 2)) is None
    first.close()
    again = team.consumer(enable_auto_commit=False)
    records = team.poll_until(lambda found: len(found) >= 46, again)
    assert len(records) == 46
    assert min(record.offset for record in records if record.partition == 0) == 4


def test_what_was_polled_is_committed_on_close_and_not_after_an_error(team):
    team.fill(60)
    with pytest.raises(RuntimeError), team.consumer() as first:
        team.poll_until(lambda found: len(found) == 60, first)
        raise RuntimeError("the handler failed")
    with team.consumer() as second:
        assert len(team.poll_until(lambda found: len(found) >= 60, second)) == 60, "nothing was committed"
    third = team.consumer()
    team.settle(third)
    assert third.poll(300) == []


def test_commits_happen_by_themselves(team):
    team.fill(60)
    one = team.consumer(auto_commit_interval_ms=50)
    team.poll_until(lambda found: len(found) == 60, one)
    team.poll_until(lambda _found: one.committed((team.topic, 0)) == OffsetAndMetadata(10), one)


def test_a_commit_in_the_background_says_when_it_is_done(team):
    team.fill(6)
    one, done = team.consumer(enable_auto_commit=False), []
    team.poll_until(lambda found: len(found) == 6, one)
    one.commit_async(callback=lambda offsets, error: done.append((len(offsets), error)))
    team.poll_until(lambda _found: done, one)
    assert done == [(6, None)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_of_a_commit_that_raises_does_not_end_the_consumer(team):
    team.fill(6)
    one, done = team.consumer(enable_auto_commit=False), []

    def raising(offsets, error):
        done.append(error)
        raise ZeroDivisionError

    team.poll_until(lambda found: len(found) == 6, one)
    one.commit_async(callback=raising)
    team.poll_until(lambda _found: done, one)
    one.commit()  # the thread that called back still serves


@pytest.mark.parametrize("error", [ValueError, RequestTimeout, UnknownTopic])
def test_what_a_callback_raises_comes_out_of_poll_whatever_it_is(team, error):
    team.fill(6)
    one = ringlog.Consumer(bootstrap=team.bootstrap, group_id=team.group, auto_offset_reset="earliest")
    team.consumers.append(one)

    def raising(tps):
        raise error("the handler's own")

    one.subscribe([team.topic], on_assigned=raising)
    with pytest.raises(error, match="the handler's own"):
        team.poll_until(lambda found: len(found) == 6, one)
    assert len(team.poll_until(lambda found: len(found) >= 6, one)) == 6


@pytest.mark.parametrize("end", [ringlog.Consumer.close, ringlog.Consumer.unsubscribe])
def test_a_callback_that_raises_at_the_end_keeps_no_partition_from_others(team, end):
    leaver = ringlog.Consumer(bootstrap=team.bootstrap, group_id=team.group)
    team.consumers.append(leaver)

    def raising(tps):
        raise ValueError("the handler failed")

    leaver.subscribe([team.topic], on_revoked=raising)
    team.settle(leaver)
    with pytest.raises(ValueError, match="the handler failed"):
        end(leaver)
    other = team.consumer()
    team.settle(other)
    assert len(other.assignment()) == PARTITIONS


def test_partitions_are_given_up_once_though_the_callback_raises(team):
    told: list[TopicPartition] = []

    def raising(tps):
        told.extend(tps)
        raise ValueError("the handler failed")

    one = ringlog.Consumer(bootstrap=team.bootstrap, group_id=team.group, auto_offset_reset="earliest")
    one.subscribe([team.topic], on_revoked=raising)
    team.settle(one)
    team.fill(60)
    next(one)  # what else was polled for the loop waits in the consumer
    other = team.consumer("other")
    assert one._group is not None
    driver = one._group._driver
    team.poll_until(lambda _found: driver.look(lambda member: member.to_give_up), other)
    with pytest.raises(ValueError, match="the handler failed"):
        next(one)
    assert len(told) == PARTITIONS // 2
    mine = {tp.partition for tp in one.assignment()}
    assert not mine & {tp.partition for tp in told}
    assert {record.partition for record in one.poll(0)} <= mine, "what waits is not of those that went"
    team.settle(one, other)
    assert len(told) == PARTITIONS // 2, "it was told once"
    one.subscribe([team.topic])
    one.close()


@pytest.mark.parametrize("end", [ringlog.Consumer.close, ringlog.Consumer.unsubscribe])
def test_a_callback_that_is_told_of_partitions_that_go_may_not_end_its_consumer(team, end):
    refused: list[str] = []

    def ending(tps):
        try:
            end(one)
        except InvalidRequest as error:
            refused.append(str(error))

    one = ringlog.Consumer(bootstrap=team.bootstrap, group_id=team.group)
    one.subscribe([team.topic], on_revoked=ending)
    team.settle(one)
    other = team.consumer()
    team.settle(one, other)
    assert ["may not close or unsubscribe" in text for text in refused] == [True]
    one.close()
    assert len(refused) == 2
    team.settle(other)


def test_what_was_polled_of_revoked_partitions_is_committed_before_others_read_them(team):
    """By that alone: the interval is an hour, and nobody closes."""
    team.fill(60)
    one = team.consumer("one", auto_commit_interval_ms=3_600_000)
    assert len(team.poll_until(lambda found: len(found) >= 60, one)) == 60
    other = team.consumer("other", auto_commit_interval_ms=3_600_000)
    again = team.settle(one, other)
    committed = {index: one.committed((team.topic, index)) for index in range(PARTITIONS)}
    moved = {tp.partition for tp in other.assignment()}
    assert committed == {
        index: OffsetAndMetadata(10) if index in moved else None for index in range(PARTITIONS)
    }
    again += other.poll(300)
    assert again == [], "the other one goes on where the first one stopped"


def test_a_callback_may_leave_the_group(team):
    team.fill(6)
    one = ringlog.Consumer(bootstrap=team.bootstrap, group_id=team.group, auto_offset_reset="earliest")
    team.consumers.append(one)
    one.subscribe([team.topic], on_assigned=lambda tps: one.unsubscribe())
    with pytest.raises(InvalidRequest, match="there is nothing to read"):
        team.poll_until(lambda found: False, one)


def test_a_consumer_of_a_group_that_nobody_holds_goes_at_once_with_its_thread(team):
    one = ringlog.Consumer(bootstrap=team.bootstrap, group_id=team.group, client_id="dropped")
    one.subscribe([team.topic])
    until = time.monotonic() + stretched(10)
    while len(one.assignment()) < PARTITIONS:
        assert time.monotonic() < until
        one.poll(20)
    gc.disable()
    try:
        del one
        assert not [thread for thread in threading.enumerate() if thread.name == "ringlog-client-dropped"]
    finally:
        gc.enable()


def test_a_slow_handler_causes_no_rebalance(team):
    team.fill(6)
    one = team.consumer("slow", session_timeout_ms=1_000)
    other = team.consumer("other", session_timeout_ms=1_000)
    team.settle(one, other)
    heard = len(team.heard)
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        other.poll(50)
    one.poll(100)
    one.commit()
    assert len(team.heard) == heard


def test_a_restart_under_a_name_moves_nothing(team):
    one = team.consumer("named", group_instance_id="one")
    other = team.consumer("other", group_instance_id="two")
    team.settle(one, other)
    mine = one.assignment()
    heard = len(team.heard)
    one.close()
    again = team.consumer("again", group_instance_id="one")
    team.settle(again, other)
    assert again.assignment() == mine
    assert [who for who, *_ in team.heard[heard:]] == ["named", "again"], "the other hears of nothing"


def test_two_processes_of_one_name_do_not_fight(team):
    one = team.consumer(group_instance_id="one")
    team.settle(one)
    again = team.consumer(group_instance_id="one")
    team.settle(again)
    with pytest.raises(InstanceFenced):
        team.poll_until(lambda _found: False, one)
    assert len(again.assignment()) == PARTITIONS


def test_new_topics_and_partitions_are_picked_up(team, node):
    one = team.consumer(pattern=f"{team.topic}*")
    team.settle(one)
    with ringlog.Admin(bootstrap=node.bootstrap) as admin:
        admin.add_partitions(team.topic, PARTITIONS + 2)
        admin.create_topic(f"{team.topic}-more", 3)
    team.settle(one, partitions=PARTITIONS + 2 + 3)


def test_a_loop_over_a_consumer_of_a_group_ends_where_it_is_left(team):
    team.fill(60)
    with team.consumer() as one:
        for count, _record in enumerate(one, 1):
            if count == 25:
                break
    with team.consumer() as again:
        assert len(team.poll_until(lambda found: len(found) >= 35, again)) == 35


def test_a_consumer_without_a_subscription_reads_and_commits_for_its_group(team):
    team.fill(60)
    settings = {"bootstrap": team.bootstrap, "group_id": "by hand", "auto_offset_reset": "error"}
    with ringlog.Consumer(**settings) as one:
        one.assign([(team.topic, 0)])
        with pytest.raises(OffsetOutOfRange):
            one.poll(1000)
        one.seek((team.topic, 0), 3)
        assert len(one.poll(5000)) == 7
    with ringlog.Consumer(**settings) as again:
        again.assign([(team.topic, 0)])
        assert again.position((team.topic, 0)) == 10
        with pytest.raises(InvalidRequest, match="by hand"):
            again.subscribe([team.topic])


MEMBER = """
import sys, ringlog
bootstrap, group, topic, session_ms = sys.argv[1:]
consumer = ringlog.Consumer(bootstrap, group_id=group, session_timeout_ms=int(session_ms))
def hear(what):
    return lambda tps: print(what, sorted(tp.partition for tp in tps), flush=True)
consumer.subscribe([topic], on_assigned=hear("assigned"), on_revoked=hear("revoked"), on_lost=hear("lost"))
while True:
    consumer.poll(50)
"""


@contextmanager
def member_process(team: Team, session_ms: int) -> Iterator[subprocess.Popen[str]]:
    """A member of a team in a process of its own, which prints what it is called back with."""
    arguments = [team.bootstrap, team.group, team.topic, str(session_ms)]
    command = [sys.executable, "-c", MEMBER, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
        try:
            yield member
        finally:
            member.kill()


def test_the_death_of_a_member_on_the_same_host_is_seen_long_before_its_session_is_over(team):
    one = team.consumer()
    with member_process(team, session_ms=600_000) as member:
        team.poll_until(lambda _found: len(one.assignment()) == PARTITIONS // 2, one, within_s=20)
        member.kill()
        team.settle(one)


def test_a_member_that_was_silent_for_its_session_has_lost_all_says_so_and_comes_back(team):
    one = team.consumer()
    with member_process(team, session_ms=3_000) as member:
        assert member.stdout is not None
        team.poll_until(lambda _found: len(one.assignment()) == PARTITIONS // 2, one, within_s=20)
        what, _, held = member.stdout.readline().partition(" ")
        assert what == "assigned"
        member.send_signal(signal.SIGSTOP)
        team.settle(one)
        member.send_signal(signal.SIGCONT)
        team.poll_until(lambda _found: len(one.assignment()) == PARTITIONS // 2, one, within_s=20)
        assert member.stdout.readline() == f"lost {held}"
        assert member.stdout.readline().startswith("assigned [")


def test_a_group_survives_the_death_of_every_process_of_the_node_without_a_rebalance(tmp_path):
    with NodeProcess(str(tmp_path), shards=2) as running:
        team = Team(running.bootstrap, "t")
        one, other = team.consumer("a"), team.consumer("b")
        team.settle(one, other)
        heard = len(team.heard)
        for role, index in (("shard", 0), ("shard", 1), ("net", 0), ("controller", 0)):
            old_pid = running.kill(role, index)
            running.wait_replaced(role, index, old_pid)
            team.fill(60)
            assert len(team.poll_until(lambda found: len(found) >= 60, one, other, within_s=30)) == 60
            one.commit()
            other.commit()
        assert team.heard[heard:] == []
        team.close()
