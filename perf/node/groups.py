"""Groups: how many offsets a node takes in a second, and how long partitions that move are read by nobody."""

from __future__ import annotations

import threading
import time

from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate
from perf.node.setting import NodeBench, chunk_of, send_all
from ringlog.client.consumer import Consumer
from ringlog.client.producer import Producer
from ringlog.errors import RinglogError
from ringlog.model import TopicPartition

PARTITIONS = 100
MEMBERS = 50
COMMITS_AHEAD = 64


def commits(bench: NodeBench) -> Result:
    """Commits of all partitions that a member holds, many on their way at once."""
    topic, chunk = bench.topic(PARTITIONS), chunk_of(100)
    offsets = bench.scale.small_records // 20
    with (
        Consumer(bench.node.bootstrap, topic, enable_auto_commit=False) as consumer,
        Producer(bench.node.bootstrap) as producer,
    ):
        consumer.subscribe([topic])
        while len(consumer.assignment()) < PARTITIONS:
            consumer.poll(10)
        samples, limits = alternate(
            lambda: offsets / _commit_all(consumer, topic, offsets) / 1e3,
            lambda: offsets / send_all(producer, topic, chunk, offsets) / 1e3,
            bench.scale.rounds,
        )
    bench.drop(topic)
    return result_of(
        "commits",
        f"offsets committed, {PARTITIONS} in a commit, flushed before the answer, 1 consumer",
        "K offsets/s",
        samples,
        "produce_many of as many records of 100 B",
        limits,
        Goal.at_least(100, "K offsets/s"),
    )


def _commit_all(consumer: Consumer, topic: str, offsets: int) -> float:
    room, done, errors = threading.Semaphore(COMMITS_AHEAD), threading.Semaphore(0), []

    def answered(_offsets: object, error: RinglogError | None) -> None:
        if error is not None:
            errors.append(error)
        room.release()
        done.release()

    count = max(offsets // PARTITIONS, 1)
    began = time.perf_counter()
    for number in range(count):
        room.acquire()
        consumer.commit_async({(topic, index): number for index in range(PARTITIONS)}, answered)
    for _ in range(count):
        done.acquire()
    taken_s = time.perf_counter() - began
    assert not errors, errors[0]
    return taken_s


class _Member:
    """A consumer, and when it began and ended to read partitions."""

    def __init__(self, bench: NodeBench, topic: str) -> None:
        self.began_s: dict[TopicPartition, float] = {}
        self.ended_s: dict[TopicPartition, float] = {}
        self.consumer = Consumer(bench.node.bootstrap, group_id=topic, auto_offset_reset="earliest")
        self.consumer.subscribe([topic], on_assigned=self._begin, on_revoked=self._end)

    def _begin(self, tps: list[TopicPartition]) -> None:
        self.began_s.update(dict.fromkeys(tps, time.perf_counter()))

    def _end(self, tps: list[TopicPartition]) -> None:
        self.ended_s.update(dict.fromkeys(tps, time.perf_counter()))


def rebalance(bench: NodeBench) -> Result:
    """One more joins many members: what moves is read by nobody from its revocation to its assignment."""
    partitions = bench.scale.many_partitions
    topic = bench.topic(partitions)
    team = [_Member(bench, topic) for _ in range(min(MEMBERS, partitions // 4))]
    disturbed = 0

    def settle() -> None:
        share = partitions // len(team)
        until_s = time.perf_counter() + 120
        while any(len(member.consumer.assignment()) not in (share, share + 1) for member in team):
            assert time.perf_counter() < until_s, "the group comes to no rest"
            for member in team:
                member.consumer.poll(0)

    def join() -> float:
        nonlocal disturbed
        for member in team:
            member.began_s.clear()
            member.ended_s.clear()
        new = _Member(bench, topic)
        team.append(new)
        settle()
        others = [member for member in team if member is not new]
        ended_s = {tp: at_s for member in others for tp, at_s in member.ended_s.items()}
        disturbed += sum(len(member.began_s) for member in others) + len(ended_s.keys() ^ new.began_s.keys())
        team.remove(new)
        new.consumer.close()
        settle()
        return max(at_s - ended_s[tp] for tp, at_s in new.began_s.items())

    settle()
    samples, limits = alternate(join, lambda: 2 * bench.raw_durable_ms() / 1e3, bench.scale.rounds)
    for member in team:
        member.consumer.close()
    bench.drop(topic)
    return result_of(
        "rebalance",
        f"the longest that a partition is read by nobody: 1 joins {len(team)} with {partitions} partitions",
        "s",
        samples,
        "two durable writes",
        limits,
        Goal.at_most(1, "s"),
        {"partitions_that_stay_and_were_disturbed": float(disturbed)},
    )
