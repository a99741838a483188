"""Shards that stand still: who is relieved, when, and who is never left alone."""

from __future__ import annotations

from ringlog.controller import brokers
from ringlog.controller.active import ActiveController
from ringlog.controller.still import StillShards
from ringlog.net.cluster_messages import BrokerHeartbeatRequest
from tests.support.controller_world import cluster, everything, replay


def test_what_a_shard_that_stands_still_led_or_followed_others_do_and_its_node_keeps_the_rest():
    image = cluster(partitions=12)
    before = {one.partition: one for one in everything(image)}
    stuck = {number for number, one in before.items() if one.shard_on(2) == 0}
    assert any(before[number].leader == 2 for number in stuck) and stuck < set(before)
    still = StillShards()
    assert still.heard(image, 2, [0], {}) == [], "it may have been busy: the others are heard first"
    replay(image, still.heard(image, 2, [0], {}))
    for number, partition in image.partitions.items():
        if number not in stuck:
            assert partition == before[number]
            continue
        assert partition.leader in (1, 3) and set(partition.isr) == {1, 3}
        assert partition.leader_epoch == before[number].leader_epoch + 1, "nobody goes by what it held"
    assert still.heard(image, 2, [0], {}) == [], "once is enough"


def test_a_shard_that_stands_still_and_is_the_last_in_sync_leads_on_in_its_epoch():
    image = cluster()
    for node_id in (1, 3):
        replay(image, brokers.fence(image, node_id))
    still = StillShards()
    assert [still.heard(image, 2, [0, 1], {}) for _ in range(2)] == [[], []]


def test_where_acknowledgements_need_it_a_shard_that_stands_still_stays():
    image = cluster()
    replay(image, brokers.fence(image, 1))
    still = StillShards()
    assert [still.heard(image, 2, [0, 1], {"min.insync.replicas": "2"}) for _ in range(2)] == [[], []]


def test_when_the_disks_of_all_stand_still_nobody_is_left_alone():
    image = cluster(partitions=4)
    before = {one.partition: one for one in everything(image)}
    still = StillShards()
    for _ in range(3):
        for node_id in (1, 2, 3):
            replay(image, still.heard(image, node_id, [0, 1], {}))
    assert image.partitions == before


def test_a_shard_that_stood_still_once_and_moves_is_left_alone():
    image = cluster()
    still = StillShards()
    assert [still.heard(image, 2, shards, {}) for shards in ([0], [], [0])] == [[], [], []]


def test_the_active_controller_relieves_what_heartbeats_say_twice():
    image = cluster(partitions=2)
    active = ActiveController(image, [], session_ms=1000, now_ms=0)
    beat = BrokerHeartbeatRequest(2, image.brokers[2].broker_epoch, 9, still_shards=[0, 1])
    said = [active.judge(beat, committed_version=9, now_ms=at).records for at in (0, 200)]
    assert said[0] == [] and {2} & {node for one in said[1] for node in one.isr} == set()
    assert len(said[1]) == 2
