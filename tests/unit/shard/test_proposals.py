"""Proposals of in-sync replicas, and refusals that come late, twice, or before the metadata that explains them."""

from __future__ import annotations

from ringlog.controller.records import Partition, Topic
from ringlog.net.cluster_messages import AlterIsrRequest
from ringlog.net.messages import decode_body
from ringlog.net.wire_errors import NUMBERS
from ringlog.replication.leader import Leader
from ringlog.shard.proposing import PROPOSE_AGAIN_MS
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


def write_without_node_3(cluster: ShardCluster) -> None:
    cluster.cut.add(3)
    cluster.worlds[1].produce(b"b")
    cluster.run(30, after_ms=10)


def proposed(cluster: ShardCluster) -> list[list[int]]:
    frames = cluster.controllers[1].take()
    changes = [decode_body(frame.body, AlterIsrRequest).changes[0] for frame in frames]
    return [[member for member, _ in change.isr] for change in changes]


def test_a_shard_that_restarts_commits_nothing_that_a_proposal_of_its_former_process_could_take_back():
    cluster, _ = proposing()
    sent(cluster)  # it is on its way: the controller may take it at any time
    cluster.restart_shard(1)
    write_without_node_3(cluster)
    assert led(cluster).high_watermark <= 1, (
        "node 3 may be in sync any moment, and does not hold the second record"
    )
    cluster.tell(isr=(1, 2, 3))  # the controller has taken it now
    cluster.run(10, after_ms=50)
    assert led(cluster).high_watermark <= 1
    cluster.cut.clear()
    cluster.run(40, after_ms=100)
    assert led(cluster).high_watermark == 2


def test_a_shard_that_restarts_asks_for_an_epoch_that_ends_all_former_proposals_and_then_goes_on():
    cluster, _ = proposing()
    sent(cluster)
    cluster.restart_shard(1)
    write_without_node_3(cluster)
    assert proposed(cluster)[0] == [1, 2], "those who are in sync: it is the epoch that matters"
    cluster.tell()  # the controller has raised the partition epoch: what was proposed before is over
    cluster.run(10, after_ms=10)
    assert led(cluster).high_watermark == 2


def test_a_partition_that_was_opened_anew_counts_on_what_it_proposed_before():
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
    cluster.run(10, after_ms=10)
    before = led(cluster).high_watermark
    write_without_node_3(cluster)
    assert led(cluster).high_watermark == before
    assert proposed(cluster)[0] == [1, 2]


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
    cluster.tell()
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
        while world.core.hosting.has_to_open:
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
