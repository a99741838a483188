"""The throttle of moves: what was taken is paid off by time, at the rate that holds now, and nobody else waits."""

from __future__ import annotations

import random

from ringlog.limits import REPLICA_FETCH_BYTES, REPLICA_PARTITION_BYTES, THROTTLE_PIECE_BYTES_MIN
from ringlog.replication.fetcher import Fetcher
from ringlog.replication.messages import Part, ReplicaFetch, ReplicaFetched
from ringlog.replication.replica import Replica
from ringlog.replication.throttle import BURST_MS, Throttle
from ringlog.replication.view import PartitionView
from tests.support.replica_world import MemoryLog

MOVED, KEPT = 1, 2
"""A replica that is being made, and one that is in sync."""


def test_without_a_rate_nothing_waits():
    throttle = Throttle()
    throttle.took(1 << 40, now_ms=5)
    assert throttle.free_ms(5) == 5
    assert throttle.piece_bytes == REPLICA_PARTITION_BYTES


def test_the_rate_holds_over_any_stretch_whatever_the_pieces():
    chance = random.Random(7)
    throttle = Throttle()
    throttle.set(1_000_000, now_ms=0)
    now_ms, taken = 0, 0
    while now_ms < 60_000:
        now_ms = throttle.free_ms(now_ms) + chance.choice((0, 0, 3, 40))
        piece = chance.randint(1, 300_000)
        throttle.took(piece, now_ms)
        taken += piece
        assert taken <= 1_000_000 * (now_ms + BURST_MS) / 1000 + 300_000
    assert taken >= 0.9 * 60_000_000


def test_a_new_rate_holds_for_what_is_owed_too():
    throttle = Throttle()
    throttle.set(100_000, now_ms=1_000)
    throttle.took(1_000_000, now_ms=1_000)
    throttle.set(1_000_000, now_ms=1_000)
    assert throttle.free_ms(1_000) <= 2_000
    throttle.set(None, now_ms=1_000)
    assert throttle.free_ms(1_000) == 1_000


def test_pieces_are_a_part_of_a_seconds_bytes_and_not_too_small():
    throttle = Throttle()
    throttle.set(400_000, now_ms=0)
    assert throttle.piece_bytes == 100_000
    throttle.set(1, now_ms=0)
    assert throttle.piece_bytes == THROTTLE_PIECE_BYTES_MIN


def fetcher_with(throttle: Throttle) -> tuple[Fetcher, dict[int, Replica]]:
    fetcher = Fetcher(2, 200, 0, 1, lull_bytes=0, throttle=throttle)
    replicas = {}
    for partition, isr, adding in ((MOVED, (1,), (2,)), (KEPT, (1, 2), ())):
        replica = replicas[partition] = Replica(2, partition)
        log = MemoryLog()
        replica.follow(PartitionView(partition, 1, 1, 1, (1, 2), isr, adding=adding), log, 200, 0)
        fetcher.add(replica, log)
    return fetcher, replicas


def answered(fetcher: Fetcher, fetch: ReplicaFetch, nbytes: int, now_ms: int) -> None:
    parts = [Part(partition, 0, 1, 0, 0, 0, nbytes) for partition in (MOVED, KEPT)]
    for part in fetcher.take(ReplicaFetched(fetch.session, fetch.sequence, False, parts), now_ms) or ():
        fetcher.slow_down(part, now_ms)


def asked(fetcher: Fetcher, now_ms: int) -> list[int]:
    fetch = fetcher.next_fetch(now_ms, REPLICA_FETCH_BYTES)
    return [want.partition for want in fetch.wants] if fetch is not None else []


def test_a_replica_that_is_moved_waits_and_one_that_is_in_sync_does_not():
    throttle = Throttle()
    throttle.set(100_000, now_ms=0)
    fetcher, _ = fetcher_with(throttle)
    first = fetcher.next_fetch(0, REPLICA_FETCH_BYTES)
    assert {want.partition: want.bytes_max for want in first.wants} == {
        MOVED: 25_000,
        KEPT: REPLICA_FETCH_BYTES,
    }
    answered(fetcher, first, 100_000, 0)
    assert asked(fetcher, 1) == [KEPT]
    assert fetcher.due_ms() <= 1_000
    assert asked(fetcher, 1_000) == [MOVED]


def test_a_higher_rate_is_felt_at_once():
    throttle = Throttle()
    throttle.set(100_000, now_ms=0)
    fetcher, _ = fetcher_with(throttle)
    answered(fetcher, fetcher.next_fetch(0, REPLICA_FETCH_BYTES), 1_000_000, 0)
    assert asked(fetcher, 1) == [KEPT]
    throttle.set(None, now_ms=2)
    fetcher.hurry(2)
    assert asked(fetcher, 2) == [MOVED]


def test_who_came_into_sync_is_not_slowed_down_any_more():
    throttle = Throttle()
    throttle.set(100_000, now_ms=0)
    fetcher, replicas = fetcher_with(throttle)
    first = fetcher.next_fetch(0, REPLICA_FETCH_BYTES)
    replicas[MOVED].follow(PartitionView(MOVED, 1, 1, 2, (1, 2), (1, 2)), MemoryLog(), 200, 0)
    answered(fetcher, first, 1_000_000, 0)
    assert asked(fetcher, 1) == [MOVED, KEPT]
