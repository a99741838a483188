"""An old leader that returns with a record which nobody else has, and others that find it hard to follow: they do so in
the end, whatever is in the way."""

from __future__ import annotations

import errno

import pytest

from ringlog.errors import CorruptBatch
from ringlog.net.framing import Acks
from tests.support.shard_cluster import PARTITION, ShardCluster


def deposed() -> ShardCluster:
    """Node 1 led, has a second record alone, and is cut off; node 2 leads."""
    cluster = ShardCluster(min_insync=1)
    cluster.worlds[1].produce(b"a")
    cluster.run()
    cluster.cut.add(1)
    cluster.worlds[1].produce(b"alone", acks=Acks(1))
    cluster.run()
    cluster.elect(2, 2, 3, isr=(2, 3))
    return cluster


def test_a_replica_with_another_history_follows_a_leader_whose_log_begins_within_a_batch_there():
    cluster = deposed()
    cluster.worlds[2].produce(b"b", b"c", b"d")
    cluster.run(30)
    cluster.worlds[2].store.move_start(cluster.worlds[2].log(PARTITION).name, 2)
    cluster.run(30)
    cluster.cut.clear()
    cluster.hear(1)
    cluster.run(60, after_ms=30)
    assert cluster.worlds[1].log(PARTITION).next_offset == 4


@pytest.mark.parametrize("broken", ["open", "claim"])
def test_a_follower_whose_log_cannot_be_opened_after_a_cut_is_opened_later(broken, monkeypatch):
    cluster = deposed()
    cluster.worlds[2].produce(b"b")
    cluster.run(30)
    if broken == "claim":  # the old leader begins anew instead of being cut
        for value in (b"c", b"d"):
            cluster.worlds[2].produce(value)
            cluster.run()
        cluster.worlds[2].store.move_start(cluster.worlds[2].log(PARTITION).name, 3)
        cluster.run(30)
    store = cluster.worlds[1].store
    owner = store if broken == "open" else store.claims
    works, failures = getattr(owner, broken), []

    def fails_once(*arguments, **named):
        if not failures:
            failures.append(OSError(errno.EMFILE, "too many open files"))
            raise failures[0]
        return works(*arguments, **named)

    monkeypatch.setattr(owner, broken, fails_once)
    cluster.cut.clear()
    cluster.hear(1)
    for _ in range(60):
        cluster.run(5, after_ms=30)
        cluster.worlds[1].core.hosting.work(cluster.worlds[1].now_ms)
    assert failures
    assert cluster.values(1) == cluster.values(2)


def test_what_a_deposed_leader_still_reads_for_a_follower_is_not_sent(monkeypatch):
    cluster = ShardCluster(min_insync=1)
    cluster.worlds[1].produce(b"a")
    cluster.run()
    cluster.cut.add(2)
    store, under_way = cluster.worlds[1].store, []

    def read(name, offset, bytes_max, *, done, failed, ahead):
        under_way.append((done, hot(name, offset, bytes_max, ahead=ahead)))

    hot = store.read_tail
    monkeypatch.setattr(store, "read", read)
    monkeypatch.setattr(store, "read_tail", lambda *_, ahead: None)  # as if it were old
    cluster.worlds[1].produce(b"alone")
    cluster.run()
    assert under_way and cluster.values(3) == [b"a"]
    monkeypatch.undo()
    cluster.cut = {3}
    cluster.elect(2, 1, 2, isr=(2, 3))
    cluster.run()
    cluster.tell(1, 2, isr=(2,))  # and node 3 has heard of nothing yet
    cluster.worlds[2].produce(b"b")
    cluster.run(40, after_ms=20)
    cluster.worlds[2].produce(b"c")  # with which a follower hears that the one before is committed
    cluster.run(40, after_ms=20)
    assert cluster.values(1) == cluster.values(2) == [b"a", b"b", b"c"]
    assert cluster.worlds[1].log(PARTITION).readable_offset >= 2
    cluster.cut.clear()
    for done, slices in under_way:
        done(slices)
    cluster.hear(3)
    cluster.run(40, after_ms=20)
    assert cluster.worlds[3].core.hosting.hosted[PARTITION].replica.halted is None
    assert cluster.values(3) == [b"a", b"b", b"c"]


def test_a_partition_that_cannot_follow_says_why_once(monkeypatch, caplog):
    cluster = ShardCluster()
    with monkeypatch.context() as patch:

        def corrupt(*_: object) -> None:
            raise CorruptBatch("crc", 0, "for the test")

        patch.setattr("ringlog.shard.replicating.check_rows", corrupt)
        cluster.worlds[1].produce(b"a")
        cluster.run(40, after_ms=50)
    said = [record.message for record in caplog.records if "cannot follow" in record.message]
    assert len(said) == 2, "each of both followers once"
    cluster.run(20, after_ms=50)
    assert cluster.values(2) == cluster.values(3) == [b"a"]
