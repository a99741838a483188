"""A replica takes views in order, and keeps what outlives a role."""

from __future__ import annotations

import pytest

from ringlog.errors import NotEnoughReplicas, NotLeader, PartitionOffline, ReplicaHalted
from ringlog.model import NO_LEADER
from ringlog.replication.view import IsrProposal, PartitionView
from tests.support.replica_world import PARTITION, MemoryLog, Node, fetch, spans

VIEW = PartitionView(PARTITION, 1, 5, 10, (1, 2, 3), (1, 2, 3))


def test_it_leads_or_follows_as_the_view_says():
    one, two, four = Node(1), Node(2), Node(4)
    for node in (one, two, four):
        assert node.follow(VIEW)
    assert one.replica.leader is not None and one.replica.follower is None
    assert two.replica.follower is not None and two.replica.leader is None
    assert four.replica.leader is None and four.replica.follower is None


@pytest.mark.parametrize("old", [VIEW, VIEW._replace(leader_epoch=4, partition_epoch=11, leader=2)])
def test_a_view_that_is_not_later_changes_nothing(old):
    one = Node(1)
    one.follow(VIEW)
    role = one.replica.leader
    assert not one.follow(old)
    assert one.replica.leader is role and one.replica.view == VIEW


def test_a_change_of_the_isr_keeps_the_role():
    one, two = Node(1), Node(2)
    one.follow(VIEW)
    two.follow(VIEW)
    role, changed = one.replica.leader, VIEW._replace(isr=(1, 2), partition_epoch=11)
    assert not one.follow(changed) and not two.follow(changed)
    assert one.replica.leader is role and role.view == changed
    assert two.replica.follower is not None and two.replica.follower.view == changed


def test_settings_that_changed_are_followed_though_the_partition_did_not():
    one, two = Node(1), Node(2)
    alone = VIEW._replace(isr=(1,), min_insync=2)
    one.follow(alone)
    two.follow(alone)
    role = one.replica.leader
    with pytest.raises(NotEnoughReplicas):
        role.must_take()
    less = alone._replace(min_insync=1, compacted=True)
    assert not one.follow(less) and not two.follow(less)
    assert one.replica.leader is role
    role.must_take()
    assert two.replica.follower.view == less


def test_nobody_follows_a_leader_that_is_no_replica():
    one = Node(1)
    assert one.follow(VIEW._replace(leader=9))
    assert one.replica.leader is None and one.replica.follower is None


def test_the_watermark_outlives_the_role():
    log = MemoryLog(spans((0, 9, 4)))
    one, two, three = Node(1, log), Node(2), Node(3)
    for node in (one, two, three):
        node.follow(VIEW)
    for node in (two, three):
        fetch(node, one)
        node.log.flush()
        fetch(node, one)
    fetch(two, one)
    assert one.replica.high_watermark == two.replica.high_watermark == 10
    after = VIEW._replace(leader=2, leader_epoch=6, partition_epoch=11)
    one.follow(after)
    two.follow(after)
    assert one.replica.high_watermark == two.replica.high_watermark == 10


def test_a_client_is_told_why_there_is_no_leader_here():
    two = Node(2)
    two.follow(VIEW)
    with pytest.raises(NotLeader):
        two.replica.must_lead()
    two.follow(VIEW._replace(leader=NO_LEADER, leader_epoch=6, isr=(1,)))
    with pytest.raises(PartitionOffline, match=r"\[1\] are down"):
        two.replica.must_lead()


def test_a_log_that_is_ahead_of_the_metadata_halts():
    one = Node(1, MemoryLog(spans((0, 9, 6))))
    one.follow(VIEW)
    with pytest.raises(ReplicaHalted, match="another history"):
        one.replica.must_lead()


def test_a_halted_replica_takes_no_role_any_more():
    two = Node(2, MemoryLog(spans((0, 9, 4))))
    two.follow(VIEW)
    two.replica.halt(ReplicaHalted("look at it"))
    assert two.follow(VIEW._replace(leader=2, leader_epoch=6))
    with pytest.raises(ReplicaHalted, match="look at it"):
        two.replica.must_lead()


def test_a_halted_replica_keeps_nothing_of_those_who_ask_it():
    two = Node(2)
    two.follow(VIEW)
    two.replica.halt(ReplicaHalted("look at it"))
    for _ in range(2):
        with pytest.raises(ReplicaHalted):
            two.replica.must_lead()
    assert two.replica.halted is not None
    assert two.replica.halted.__traceback__ is None, "a traceback holds the frames, and all that they see"


def test_what_was_committed_before_an_unclean_election_is_void_in_a_follower_alone():
    two, three = Node(2), Node(3)
    for node in (two, three):
        node.log.add(spans((0, 9, 5)))
        node.follow(VIEW)
        node.replica.follower.high_watermark = 10
    unclean = VIEW._replace(leader=2, leader_epoch=8, partition_epoch=12, isr=(2,), unclean_epoch=7)
    two.follow(unclean)
    three.follow(unclean)
    assert two.replica.high_watermark == 10, "it has what it knows to be committed"
    assert three.replica.high_watermark == 0
    three.replica.follower.high_watermark = 10
    three.follow(unclean._replace(leader_epoch=9, partition_epoch=13))
    assert three.replica.high_watermark == 10, "of an election that was known before"


def test_who_opened_its_log_anew_leads_nothing_while_another_one_is_in_sync():
    one = Node(1)
    assert one.replica.follow(VIEW, one.log, one.node_epoch, 0, resumed=True)
    assert one.replica.leader is None
    assert one.replica.renewal == IsrProposal(
        PARTITION, 1, 5, 10, ((1, one.node_epoch), (2, -1), (3, -1)), renews=True
    )
    with pytest.raises(NotLeader, match="opened its log anew"):
        one.replica.must_lead()
    one.follow(VIEW._replace(isr=(1, 2), partition_epoch=11))
    assert one.replica.leader is None and one.replica.renewal.partition_epoch == 11
    one.follow(VIEW._replace(leader_epoch=6, partition_epoch=12))
    assert one.replica.leader is None, "it was elected by somebody who has not heard it"
    assert one.replica.renewal.leader_epoch == 6
    one.follow(VIEW._replace(leader=2, leader_epoch=7, partition_epoch=13, isr=(2, 3)))
    assert one.replica.follower is not None and one.replica.renewal is None
    one.follow(VIEW._replace(leader_epoch=8, partition_epoch=15))
    assert one.replica.leader is not None, "it has caught up meanwhile, as its leader says"


def test_who_opened_its_log_anew_and_is_the_only_one_in_sync_leads_in_another_epoch():
    one, alone = Node(1), VIEW._replace(isr=(1,))
    one.replica.follow(alone, one.log, one.node_epoch, 0, resumed=True)
    assert one.replica.leader is None and one.replica.renewal is not None
    one.follow(alone._replace(leader_epoch=6, partition_epoch=11))
    assert one.replica.leader is not None and one.replica.renewal is None


def test_who_was_elected_with_a_log_that_was_opened_anew_leads_when_it_is_the_last_one_in_sync():
    one, elected = Node(1), VIEW._replace(leader_epoch=6, partition_epoch=11)
    one.replica.follow(VIEW._replace(leader=2), one.log, one.node_epoch, 0, resumed=True)
    one.follow(elected)
    assert one.replica.leader is None and one.replica.renewal is not None
    assert one.follow(elected._replace(isr=(1,), partition_epoch=12)), "it has a role from now on"
    assert one.replica.leader is not None and one.replica.renewal is None


def test_who_led_when_its_log_was_opened_anew_leads_no_more_in_that_epoch_though_it_is_the_last_one_in_sync():
    one = Node(1)
    one.replica.follow(VIEW, one.log, one.node_epoch, 0, resumed=True)
    assert not one.follow(VIEW._replace(isr=(1,), partition_epoch=11))
    assert one.replica.leader is None and one.replica.renewal is not None


def test_who_waits_to_be_elected_asks_for_nothing():
    one, alone = Node(1), VIEW._replace(isr=(1,), leader=NO_LEADER)
    one.replica.follow(alone, one.log, one.node_epoch, 0, resumed=True)
    assert one.replica.renewal is None
    one.follow(alone._replace(leader=1, leader_epoch=6, partition_epoch=11))
    assert one.replica.leader is not None


def test_a_follower_that_opened_its_log_anew_leaves_the_in_sync_ones_and_serves_no_readers_until_then():
    two = Node(2)
    two.replica.follow(VIEW, two.log, two.node_epoch, 0, resumed=True)
    assert two.replica.follower is not None and not two.replica.serves_readers
    assert two.replica.renewal == IsrProposal(
        PARTITION, 2, 5, 10, ((1, -1), (2, two.node_epoch), (3, -1)), renews=True
    )
    two.follow(VIEW._replace(isr=(1, 3), partition_epoch=11))
    assert two.replica.follower is not None and two.replica.renewal is None
    two.follow(VIEW._replace(partition_epoch=12))
    assert two.replica.serves_readers
