"""Proposals of in-sync replicas, and refusals that come late, twice, or before the metadata that explains them."""

from __future__ import annotations

import errno
import random

import pytest

from ringlog.controller.records import Partition, Topic
from ringlog.net.cluster_messages import AlterIsrRequest
from ringlog.net.framing import Acks
from ringlog.net.messages import decode_body
from ringlog.net.wire_errors import NUMBERS
from ringlog.replication.leader import Leader
from ringlog.shard.hosting import Hosting
from ringlog.shard.proposing import PROPOSE_AGAIN_MS
from ringlog.shard.replicating import LOOK_MS
from tests.support.shard_cluster import PARTITION, ShardCluster

STALE, BUSY = NUMBERS["STALE_METADATA"], NUMBERS["PARTITION_BUSY"]


def sent(cluster: ShardCluster) -> list[int]:
    """Numbers of the requests in which node 1 has proposed that node 3 comes into sync."""
    frames = cluster.controllers[1].take()
    for frame in frames:
        (change,) = decode_body(frame.body, AlterIsrRequest).changes
        assert [member for member, _ in change.isr] == [1, 2, 3]
    return [frame.correlation for frame in frames]


def proposing() -> tuple[ShardCluster, Leader]:
    """Node 3 holds all, and node 1 is about to propose it."""
    cluster = ShardCluster()
    cluster.worlds[1].produce(b"a")
    cluster.run()
    cluster.tell(isr=(1, 2))
    cluster.run(10, after_ms=50)
    leader = cluster.worlds[1].core.hosting.hosted[PARTITION].replica.leader
    assert leader is not None and leader.pending is not None
    return cluster, leader


def test_a_copy_that_is_refused_because_the_first_was_taken_does_not_end_the_proposal():
    cluster, leader = proposing()
    cluster.run(PROPOSE_AGAIN_MS // 50 + 5, after_ms=50)
    first, *_, last = sent(cluster)
    assert first != last, "it was sent again"
    cluster.tell(
        2, 3, isr=(1, 2, 3)
    )  # the controller has taken the first copy; the leader's node has not heard of it
    cluster.refuse(1, last, STALE)
    assert leader.pending is not None
    cluster.cut.add(3)
    cluster.worlds[1].produce(b"b")
    cluster.run()
    assert leader.high_watermark == 1, "node 3 may lead next, and does not hold the second record"


def test_a_refusal_of_an_earlier_request_says_nothing_of_what_was_proposed_since():
    cluster, leader = proposing()
    (first,) = sent(cluster)
    cluster.refuse(1, first, BUSY)
    assert leader.pending is None
    cluster.run(10, after_ms=50)
    (second,) = sent(cluster)
    cluster.refuse(1, first, BUSY)  # once more: a copy of it was under way, too
    assert leader.pending is not None
    cluster.refuse(1, second, BUSY)
    assert leader.pending is None


def led(cluster: ShardCluster) -> Leader:
    leader = cluster.worlds[1].core.hosting.hosted[PARTITION].replica.leader
    assert leader is not None
    return leader


def proposed(cluster: ShardCluster) -> list[list[int]]:
    frames = cluster.controllers[1].take()
    changes = [decode_body(frame.body, AlterIsrRequest).changes[0] for frame in frames]
    return [[member for member, _ in change.isr] for change in changes]


def renewals(cluster: ShardCluster) -> list[tuple[int, int, bool]]:
    """Leader epoch and partition epoch of what node 1 has asked for, and whether it was a new epoch."""
    frames = cluster.controllers[1].take()
    changes = [decode_body(frame.body, AlterIsrRequest).changes[0] for frame in frames]
    return [(change.leader_epoch, change.partition_epoch, change.renews) for change in changes]


def refused(cluster: ShardCluster, value: bytes, acks: Acks = Acks.ALL) -> bool:
    """Whether node 1 does not take a record."""
    cluster.worlds[1].net.take()
    cluster.worlds[1].produce(value, acks=acks)
    replies = cluster.worlds[1].net.take()
    return [reply.error.code for reply in replies if reply.error] == ["NOT_LEADER"]


@pytest.mark.parametrize("acks", [Acks.ALL, Acks.LEADER])
def test_a_shard_that_restarts_takes_nothing_before_it_was_relieved_and_elected_again(acks):
    cluster, _ = proposing()
    sent(cluster)  # it is on its way: the controller may take it at any time
    cluster.restart_shard(1)
    assert refused(cluster, b"b", acks)
    cluster.run(1)
    epochs = cluster.record.leader_epoch, cluster.record.partition_epoch
    assert renewals(cluster) == [(*epochs, True)]
    cluster.tell(isr=(1, 2, 3))  # the controller has taken what the former process proposed
    assert refused(cluster, b"b", acks)
    cluster.run(LOOK_MS // 10, after_ms=10)
    assert renewals(cluster) == [(epochs[0], epochs[1] + 1, True)], (
        "against the partition as it is now, and at once"
    )
    cluster.run(PROPOSE_AGAIN_MS // 50, after_ms=50)
    assert renewals(cluster) == [(epochs[0], epochs[1] + 1, True)], "it was not answered"
    cluster.elect(2, isr=(2, 3))
    cluster.run(10, after_ms=10)
    cluster.elect(1, isr=(1, 2, 3))
    cluster.run(10, after_ms=10)
    cluster.worlds[1].produce(b"b", acks=acks)
    cluster.run(30, after_ms=10)
    assert led(cluster).high_watermark == 2 and renewals(cluster) == []


def test_a_partition_that_was_opened_anew_has_to_be_relieved_too():
    cluster, _ = proposing()
    sent(cluster)
    world, faults = cluster.worlds[1], cluster.disks[1].faults
    for number in range(400):
        faults.fail("write", nth=world.disk._kinds["write"] + number)
    world.produce(b"lost")
    world.settle()
    assert PARTITION not in world.core.hosting.hosted
    faults._by_kind.clear()
    world.at(1_000)
    world.core.hosting.work(world.now_ms)
    assert refused(cluster, b"b")
    cluster.run(1)
    assert renewals(cluster) == [(cluster.record.leader_epoch, cluster.record.partition_epoch, True)]


def test_a_leader_whose_log_cannot_be_opened_lets_another_one_lead(monkeypatch):
    cluster = ShardCluster()
    cluster.worlds[1].produce(b"a")
    cluster.run()
    world, faults = cluster.worlds[1], cluster.disks[1].faults
    for number in range(10):
        faults.fail("write", nth=world.disk._kinds["write"] + number)
    monkeypatch.setattr(world.store, "reopen", _failing)
    world.produce(b"lost")
    world.settle()
    cluster.run(20, after_ms=50)
    assert PARTITION not in world.core.hosting.hosted
    assert renewals(cluster)[0] == (cluster.record.leader_epoch, cluster.record.partition_epoch, True)
    cluster.relieve(1)
    cluster.run(20, after_ms=50)
    assert renewals(cluster) == [], "it is out of sync: nobody waits for it"
    cluster.worlds[2].produce(b"b")
    cluster.run(60, after_ms=20)
    assert cluster.values(2) == cluster.values(3) and cluster.values(2)[-1] == b"b"


def _failing(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "the disk is gone")


def test_a_leader_with_a_full_disk_lets_another_one_lead(monkeypatch):
    monkeypatch.setattr(Hosting, "_has_room", lambda *_: False)
    cluster = ShardCluster(lag_ms_max=1_000)
    cluster.worlds[1].produce(b"a")
    cluster.run()
    world, faults = cluster.worlds[1], cluster.disks[1].faults
    cluster.cut = {2, 3}
    for number in range(10):
        faults.fail("write", nth=world.disk._kinds["write"] + number, errno=errno.ENOSPC)
    world.net.take()
    world.produce(b"too much")
    world.settle()
    assert [reply.error.code for reply in world.net.take()] == ["DISK_FULL"]
    cluster.cut = set()
    cluster.run(60, after_ms=50)
    asked = [decode_body(frame.body, AlterIsrRequest).changes[0] for frame in cluster.controllers[1].take()]
    assert asked and all(change.renews for change in asked), (
        "its followers lack what it could not write itself"
    )
    cluster.relieve(1)
    cluster.worlds[2].produce(b"b")
    cluster.run(60, after_ms=20)
    assert cluster.values(2) == cluster.values(3) == [b"a", b"b"]
    faults._by_kind.clear()
    monkeypatch.setattr(Hosting, "_has_room", lambda *_: True)
    for _ in range(10):
        world.core.hosting.work(world.now_ms)
        cluster.run(60, after_ms=20)
    assert cluster.values(1) == [b"a", b"b"]
    assert cluster.answer_proposals()[-1:] == [(1, 2, 3)], "it has caught up"


def test_what_a_leader_has_sent_and_lost_stays_where_others_have_it():
    cluster = ShardCluster()
    cluster.worlds[1].produce(b"a")
    cluster.run()
    cluster.disks[1].hold_all("write")
    cluster.worlds[1].produce(b"lost")
    cluster.run()
    assert cluster.values(2) == cluster.values(3) == [b"a", b"lost"]
    cluster.disks[1] = cluster.disks[1].crash(
        random.Random(1), survival=0.0
    )  # of its process, not of its node
    cluster.restart_shard(1)
    assert cluster.values(1) == [b"a"]
    cluster.run(1)
    assert cluster.answer_proposals() == [(1, 2, 3)]
    cluster.worlds[2].produce(b"other")
    cluster.run(40, after_ms=20)
    assert cluster.values(1) == cluster.values(2) == cluster.values(3) == [b"a", b"lost", b"other"]


def test_what_a_leader_alone_has_sent_and_lost_is_cut_by_those_who_have_it():
    cluster = ShardCluster(min_insync=1)
    cluster.worlds[1].produce(b"a")
    cluster.run()
    cluster.disks[1].hold_all("write")
    cluster.worlds[1].produce(b"lost")
    cluster.run()
    cluster.tell(isr=(1,))
    cluster.disks[1] = cluster.disks[1].crash(random.Random(1), survival=0.0)
    cluster.restart_shard(1)
    cluster.run(1)
    assert cluster.answer_proposals() == [(1,)]
    cluster.worlds[1].produce(b"other")
    cluster.run(40, after_ms=20)
    assert cluster.values(1) == cluster.values(2) == cluster.values(3) == [b"a", b"other"]
    assert led(cluster).high_watermark == 2


def rotten_tail(cluster: ShardCluster, node: int, value: bytes) -> None:
    """A node's shard dies, and what a record is made of is not what was flushed."""
    disk = cluster.disks[node].after_death(1)
    directory = f"{cluster.worlds[node].store.root}/events-0"
    path = next(f"{directory}/{name}" for name, _ in disk.list_dir(directory) if name.endswith(".log"))
    data = bytearray(disk.content(path))
    data[data.rindex(value)] ^= 1
    disk.put(path, bytes(data))
    cluster.disks[node] = disk
    cluster.restart_shard(node)


def test_what_rotted_on_the_leader_is_not_cut_from_the_others_when_its_shard_restarts():
    cluster = ShardCluster()
    for value in (b"a", b"b"):
        cluster.worlds[1].produce(value)
        cluster.run(30, after_ms=10)
    rotten_tail(cluster, 1, b"b")
    assert cluster.values(1) == [b"a"]
    for _ in range(20):
        cluster.run(5, after_ms=20)
        cluster.answer_proposals()
    assert cluster.record.leader == 2 and set(cluster.record.isr) == {1, 2, 3}
    assert cluster.values(1) == cluster.values(2) == cluster.values(3) == [b"a", b"b"]


def test_a_follower_whose_log_went_back_is_not_in_sync_until_it_has_caught_up():
    cluster = ShardCluster()
    for value in (b"a", b"b"):
        cluster.worlds[1].produce(value)
        cluster.run(30, after_ms=10)
    rotten_tail(cluster, 2, b"b")
    cluster.run(1)
    cluster.cut = {2}  # it is heard by the controller alone
    cluster.answer_proposals()
    assert set(cluster.record.isr) == {1, 3}
    cluster.run(30, after_ms=50)
    assert cluster.answer_proposals() == [], "what its former process held counts no more"
    cluster.cut = set()
    for _ in range(20):
        cluster.run(5, after_ms=20)
        cluster.answer_proposals()
    assert cluster.values(2) == [b"a", b"b"] and set(cluster.record.isr) == {1, 2, 3}


def test_a_shard_that_is_the_first_of_its_node_or_is_elected_has_nothing_to_wait_for():
    cluster = ShardCluster()
    cluster.run(10, after_ms=50)
    cluster.elect(2)
    cluster.run(10, after_ms=50)
    assert proposed(cluster) == [] and cluster.controllers[2].take() == []


def test_an_answer_to_a_former_process_is_not_taken_for_one_to_this():
    cluster, _ = proposing()
    (first,) = sent(cluster)
    cluster.restart_shard(1)
    cluster.run(1)
    cluster.elect(2, isr=(2,))
    cluster.elect(1, isr=(1, 2))
    cluster.run(30, after_ms=10)
    mine = cluster.controllers[1].take()[-1].correlation
    leader = led(cluster)
    assert leader.pending is not None
    cluster.refuse(1, first, BUSY)
    assert leader.pending is not None
    cluster.refuse(1, mine, BUSY)
    assert leader.pending is None


def test_a_node_that_is_leaving_is_not_proposed():
    cluster = ShardCluster()
    cluster.run()
    cluster.leaving.add(3)
    cluster.tell(isr=(1, 2))
    cluster.run(20, after_ms=50)
    assert cluster.controllers[1].take() == []


def test_many_proposals_go_in_as_many_requests_as_it_takes(monkeypatch):
    monkeypatch.setattr("ringlog.shard.proposing.FETCH_PARTITIONS_MAX", 2)
    cluster = ShardCluster()
    more = [
        Partition(PARTITION + at, 2, at - 1, 0, 1, 1, (1, 2, 3), (0, 0, 0), leader=1, isr=(1, 2))
        for at in range(1, 6)
    ]
    for world in cluster.worlds.values():
        world.delta(Topic(2, "others", {}), *more)
        while world.core.hosting.has_work:
            world.core.hosting.work(world.now_ms)
    cluster.run(10, after_ms=50)
    asked = [decode_body(frame.body, AlterIsrRequest).changes for frame in cluster.controllers[1].take()]
    assert [len(changes) for changes in asked] == [2, 2, 1]
    assert {change.partition for changes in asked for change in changes} == {one.partition for one in more}


def test_a_refusal_for_a_partition_that_is_led_elsewhere_changes_nothing():
    cluster, _ = proposing()
    (number,) = sent(cluster)
    cluster.elect(2)
    cluster.refuse(1, number, STALE)
    assert cluster.worlds[1].core.hosting.hosted[PARTITION].replica.leader is None


def test_who_left_because_it_may_lack_what_it_held_is_not_taken_back_for_what_it_said_before():
    cluster = ShardCluster()
    cluster.worlds[1].produce(b"a")
    cluster.run()
    cluster.cut.add(3)
    cluster.restart_shard(3)
    cluster.run(10, after_ms=50)
    assert renewals_of(cluster, 3), "it asks the controller, and its leader hears nothing of it"
    cluster.relieve(3)
    cluster.run(20, after_ms=50)
    assert cluster.controllers[1].take() == [], "the leader knows that it held all, of an epoch that is over"
    cluster.cut.clear()
    cluster.run(60, after_ms=100)
    assert set(cluster.answer_proposals()) == {(1, 2, 3)}


def renewals_of(cluster: ShardCluster, node: int) -> list[bool]:
    frames = cluster.controllers[node].take()
    return [change.renews for frame in frames for change in decode_body(frame.body, AlterIsrRequest).changes]
