"""Moves of replicas: to nodes that are named, and off a node that is to go; each partition judged on its own."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ringlog.controller import brokers, isr, leaders, moves
from ringlog.controller.active import ActiveController
from ringlog.controller.commands import alter_topic, broker_metadata, create_topic
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Partition, decode_record, encode_record
from ringlog.controller.topic_config import NOTHING
from ringlog.errors import ClusterMismatch, InvalidRequest, NotEnoughBrokers, PartitionBusy, RinglogError
from ringlog.net.cluster_messages import (
    AlterIsrRequest,
    BrokerHeartbeatRequest,
    IsrChange,
    RegisterBrokerRequest,
)
from ringlog.net.messages import AddPartitionsRequest, AlterTopicRequest, CreateTopicRequest
from ringlog.net.move_messages import DrainNodeRequest, PartitionMove, ReassignReply, ReassignRequest


def done(image: MetadataImage, outcome):
    for record in outcome.records:
        image.replay(decode_record(encode_record(record)))
    return outcome.reply(image)


def cluster(nodes: int, factor: int, partitions: int = 4) -> MetadataImage:
    image = MetadataImage()
    for node_id in range(1, nodes + 1):
        join(image, node_id)
    request = CreateTopicRequest("t", partitions, factor)
    done(image, create_topic(image, request, shards=1, default_partitions=1, nodes=nodes))
    return image


def join(image: MetadataImage, node_id: int) -> None:
    request = RegisterBrokerRequest(node_id, f"life-{node_id}", f"disk-{node_id}", [], "", shards=2)
    epoch = done(image, brokers.register(image, request)).broker_epoch
    done(image, brokers.heartbeat(image, BrokerHeartbeatRequest(node_id, epoch, 9), committed_version=9))


def partition(image: MetadataImage, index: int = 0) -> Partition:
    return image.partitions[image.topics["t"].partitions[index]]


def all_in_sync(image: MetadataImage) -> None:
    """Every leader finds all replicas in sync, and proposes that."""
    for number in list(image.partitions):
        found = image.partitions[number]
        members = [(node_id, image.brokers[node_id].broker_epoch) for node_id in found.replicas]
        change = IsrChange(number, found.leader_epoch, found.partition_epoch, members)
        epoch = image.brokers[found.leader].broker_epoch
        done(image, isr.alter_isr(image, AlterIsrRequest(found.leader, epoch, [change])))


def reassign(image: MetadataImage, *wanted: tuple[str, int, list[int]]) -> ReassignReply:
    return done(image, moves.reassign(image, ReassignRequest([PartitionMove(*one) for one in wanted])))


def test_a_partition_moves_when_its_new_replicas_are_in_sync():
    image = cluster(nodes=4, factor=2)
    before = partition(image)
    target = [node_id for node_id in (4, 3, 2, 1) if node_id not in before.replicas]
    (result,) = reassign(image, ("t", 0, target)).moves
    assert (result.error, result.replicas) == ("", target)
    under_way = partition(image)
    assert set(under_way.replicas) == {1, 2, 3, 4} and under_way.isr == before.isr
    assert set(under_way.removing) == set(before.replicas)
    all_in_sync(image)
    after = partition(image)
    assert (list(after.replicas), set(after.isr)) == (target, set(target))
    assert after.leader == target[0] and after.leader_epoch > before.leader_epoch


def test_a_move_is_called_off():
    image = cluster(nodes=4, factor=2)
    before = partition(image)
    reassign(image, ("t", 0, [node for node in (1, 2, 3, 4) if node not in before.replicas]))
    (result,) = reassign(image, ("t", 0, [])).moves
    assert result.error == "" and result.replicas == list(before.replicas)
    after = partition(image)
    assert (after.replicas, after.isr, after.leader) == (before.replicas, before.isr, before.leader)
    (again,) = reassign(image, ("t", 0, [])).moves
    assert again.error == "INVALID_REQUEST" and "not being moved" in again.message


def test_a_move_that_is_called_off_leaves_the_replicas_in_the_order_that_they_had():
    image = cluster(nodes=4, factor=3, partitions=1)
    before = partition(image)
    first, second, third = before.replicas
    (new,) = {1, 2, 3, 4} - set(before.replicas)
    reassign(image, ("t", 0, [third, new, second]))
    reassign(image, ("t", 0, [new, third]))
    (result,) = reassign(image, ("t", 0, [])).moves
    after = partition(image)
    assert result.replicas == list(after.replicas) == [first, second, third]
    assert after.shards == before.shards
    reassign(image, ("t", 0, [third, second, first]))
    reassign(image, ("t", 0, [new, third, second]))
    reassign(image, ("t", 0, []))
    assert partition(image).replicas == (third, second, first), "that of its own move, not of an earlier one"


def test_a_drain_that_is_taken_back_leaves_the_preferred_leader():
    image = cluster(nodes=4, factor=3, partitions=8)
    before = {number: one.replicas for number, one in image.partitions.items()}
    done(image, moves.drain(image, DrainNodeRequest(2)))
    done(image, moves.drain(image, DrainNodeRequest(2, undo=True)))
    assert {number: one.replicas for number, one in image.partitions.items()} == before


@pytest.mark.parametrize(
    ("config", "defaults"),
    [({"min.insync.replicas": "2"}, {}), ({}, {"min.insync.replicas": "2"})],
    ids=["of the topic", "of the node"],
)
def test_a_move_ends_when_it_leaves_as_many_in_sync_as_acknowledgements_need(config, defaults):
    image = cluster(nodes=4, factor=3, partitions=1)
    image.topics["t"].config.update(config)
    before = partition(image)
    gone, stays, away = before.replicas
    (new,) = {1, 2, 3, 4} - set(before.replicas)
    for record in brokers.fence(image, away):
        image.replay(record)
    outcome = moves.reassign(image, ReassignRequest([PartitionMove("t", 0, [new, away])]), defaults)
    assert done(image, outcome).moves[0].error == ""
    come_into_sync(image, new, defaults=defaults)
    under_way = partition(image)
    assert {gone, stays, new} <= set(under_way.isr), "with the new one alone nothing could be acknowledged"
    epoch = image.brokers[away].broker_epoch
    done(image, brokers.heartbeat(image, BrokerHeartbeatRequest(away, epoch, 9), committed_version=9))
    come_into_sync(image, away, defaults=defaults)
    after = partition(image)
    assert (after.replicas, set(after.isr), after.removing) == ((new, away), {new, away}, ())


@pytest.mark.parametrize("target", ["back", "elsewhere"])
@pytest.mark.parametrize(
    ("config", "defaults"),
    [({"min.insync.replicas": "2"}, {}), ({}, {"min.insync.replicas": "2"})],
    ids=["of the topic", "of the node"],
)
def test_a_move_is_not_given_up_while_acknowledgements_need_its_new_replicas(target, config, defaults):
    image = cluster(nodes=5, factor=2, partitions=1)
    image.topics["t"].config.update(config)
    stays, away = partition(image).replicas
    new, late, other = {1, 2, 3, 4, 5} - {stays, away}
    reassign(image, ("t", 0, [new, late]))
    come_into_sync(image, new, defaults=defaults)
    for record in brokers.fence(image, away):
        image.replay(record)
    before = partition(image)
    assert set(before.isr) == {stays, new}
    wanted = [] if target == "back" else [stays, other]
    request = ReassignRequest([PartitionMove("t", 0, wanted)])
    (result,) = done(image, moves.reassign(image, request, defaults)).moves
    assert result.error == "PARTITION_BUSY" and "only 1 in sync would be left" in result.message
    assert partition(image) == before
    epoch = image.brokers[away].broker_epoch
    done(image, brokers.heartbeat(image, BrokerHeartbeatRequest(away, epoch, 9), committed_version=9))
    come_into_sync(image, away, defaults=defaults)
    (result,) = done(image, moves.reassign(image, request, defaults)).moves
    assert result.error == "" and new not in partition(image).replicas


def test_a_move_whose_new_replicas_are_not_in_sync_is_called_off_however_few_are():
    image = cluster(nodes=4, factor=2, partitions=1)
    image.topics["t"].config["min.insync.replicas"] = "2"
    before = partition(image)
    reassign(image, ("t", 0, [node for node in (1, 2, 3, 4) if node not in before.replicas]))
    for record in brokers.fence(image, before.replicas[1]):
        image.replay(record)
    (result,) = reassign(image, ("t", 0, [])).moves
    assert result.error == "" and partition(image).replicas == before.replicas


def test_a_move_is_called_off_where_acknowledgements_ask_for_more_than_there_were_replicas():
    image = cluster(nodes=4, factor=2, partitions=1)
    image.topics["t"].config["min.insync.replicas"] = "3"
    before = partition(image)
    new, late = {1, 2, 3, 4} - set(before.replicas)
    reassign(image, ("t", 0, [new, late]))
    come_into_sync(image, new)
    (result,) = reassign(image, ("t", 0, [])).moves
    assert result.error == "" and partition(image).replicas == before.replicas


def test_a_drain_is_not_taken_back_from_a_partition_whose_acknowledgements_need_the_new_replica():
    image = cluster(nodes=4, factor=2, partitions=1)
    image.topics["t"].config["min.insync.replicas"] = "2"
    drained, away = partition(image).replicas
    reassign(image, ("t", 0, [drained, away]))
    done(image, moves.drain(image, DrainNodeRequest(drained)))
    (new,) = partition(image).adding
    for record in brokers.fence(image, away):
        image.replay(record)
    come_into_sync(image, new)
    assert set(partition(image).isr) == {drained, new}, "it waits for the one that is away"
    (result,) = done(image, moves.drain(image, DrainNodeRequest(drained, undo=True))).moves
    assert result.error == "PARTITION_BUSY" and set(partition(image).isr) == {drained, new}
    assert not image.brokers[drained].draining, "the move under way ends all the same"


def test_a_move_to_fewer_replicas_than_acknowledgements_need_is_refused():
    image = cluster(nodes=4, factor=3, partitions=1)
    image.topics["t"].config["min.insync.replicas"] = "2"
    (result,) = reassign(image, ("t", 0, [1])).moves
    assert result.error == "INVALID_REQUEST" and "nothing could ever be written" in result.message


def come_into_sync(image: MetadataImage, *more: int, defaults: Mapping[str, str] = NOTHING) -> None:
    """The leader of the first partition finds more replicas in sync; the preferred one leads from then on."""
    found = partition(image)
    members = [(node_id, image.brokers[node_id].broker_epoch) for node_id in (*found.isr, *more)]
    change = IsrChange(found.partition, found.leader_epoch, found.partition_epoch, members)
    epoch = image.brokers[found.leader].broker_epoch
    done(image, isr.alter_isr(image, AlterIsrRequest(found.leader, epoch, [change]), defaults))
    for record in leaders.preferred(image):
        image.replay(record)


def test_a_move_that_takes_the_place_of_another_leaves_no_leader_that_is_no_replica():
    image = cluster(nodes=5, factor=2, partitions=1)
    old = partition(image).replicas
    new, other, last = (node for node in (1, 2, 3, 4, 5) if node not in old)
    reassign(image, ("t", 0, [new, other]))
    come_into_sync(image, new)
    led_by_new = partition(image)
    assert led_by_new.leader == new
    reassign(image, ("t", 0, [old[0], last]))
    after = partition(image)
    assert set(after.replicas) == {*old, last} and set(after.isr) == set(old)
    assert after.leader == old[0] and after.leader_epoch == led_by_new.leader_epoch + 1


def test_a_move_that_would_take_away_all_that_is_in_sync_is_refused():
    image = cluster(nodes=4, factor=1, partitions=1)
    (old,) = partition(image).replicas
    new, other, last = (node for node in (1, 2, 3, 4) if node != old)
    reassign(image, ("t", 0, [new, other]))
    come_into_sync(image, new)
    for record in brokers.fence(image, old):
        image.replay(record)
    before = partition(image)
    assert before.isr == (new,)
    (result,) = reassign(image, ("t", 0, [last])).moves
    assert result.error == "PARTITION_BUSY" and partition(image) == before


def test_one_move_that_cannot_be_does_not_stop_the_others():
    image = cluster(nodes=3, factor=2)
    results = reassign(
        image,
        ("t", 0, [9]),
        ("t", 99, [1]),
        ("ghost", 0, [1]),
        ("t", 1, [1, 1]),
        ("t", 2, [3, 1]),
        ("t", 2, [1, 2]),
    ).moves
    assert [result.error for result in results] == [
        "INVALID_REQUEST",
        "INVALID_REQUEST",
        "UNKNOWN_TOPIC",
        "INVALID_REQUEST",
        "",
        "INVALID_REQUEST",
    ]


def test_a_drained_node_keeps_nothing_and_gets_nothing():
    image = cluster(nodes=4, factor=3, partitions=8)
    held = [found for found in image.partitions.values() if 2 in found.replicas]
    reply = done(image, moves.drain(image, DrainNodeRequest(2)))
    assert len(reply.moves) == len(held) and not any(result.error for result in reply.moves)
    assert all(2 not in result.replicas and len(set(result.replicas)) == 3 for result in reply.moves)
    all_in_sync(image)
    assert not any(2 in found.replicas for found in image.partitions.values())
    request = CreateTopicRequest("new", 8, 3)
    done(image, create_topic(image, request, shards=1, default_partitions=1, nodes=4))
    assert not any(2 in found.replicas for found in image.partitions.values())
    again = RegisterBrokerRequest(2, "next life", "disk-2", [], "", shards=2)
    done(image, brokers.register(image, again))
    assert image.brokers[2].draining, "also after a restart"


def test_clients_are_told_which_nodes_are_drained():
    image = cluster(nodes=4, factor=3)
    done(image, moves.drain(image, DrainNodeRequest(2)))
    assert {one.node_id for one in broker_metadata(image) if one.draining} == {2}


def test_a_drain_without_another_node_says_so_and_moves_nothing():
    image = cluster(nodes=3, factor=3)
    before = dict(image.partitions)
    reply = done(image, moves.drain(image, DrainNodeRequest(3)))
    assert {result.error for result in reply.moves} == {"NOT_ENOUGH_BROKERS"}
    assert image.partitions == before


def test_a_drain_that_is_asked_for_again_tells_what_is_under_way_and_changes_nothing():
    image = cluster(nodes=4, factor=3, partitions=8)
    first = done(image, moves.drain(image, DrainNodeRequest(2))).moves
    outcome = moves.drain(image, DrainNodeRequest(2))
    assert outcome.records == []
    assert done(image, outcome).moves == first
    all_in_sync(image)
    assert done(image, moves.drain(image, DrainNodeRequest(2))).moves == []


def test_a_partition_that_cannot_leave_a_node_is_told_with_the_reason_and_the_ways_out():
    image = cluster(nodes=5, factor=3, partitions=1)
    stay, other, gone = partition(image).replicas
    drained, away = {1, 2, 3, 4, 5} - set(partition(image).replicas)
    done(image, moves.drain(image, DrainNodeRequest(drained)))
    for record in brokers.fence(image, away):
        image.replay(record)
    (result,) = done(image, moves.drain(image, DrainNodeRequest(gone))).moves
    assert f"node {drained} is drained, node {away} is away" in result.message
    assert f"start node {away}, or `ringlog cluster drain {drained} --undo`" in result.message
    assert f"`ringlog cluster reassign t --partition 0 --replicas {stay},{other}`" in result.message
    (fewer,) = reassign(image, ("t", 0, [stay, other])).moves
    assert fewer.error == "" and gone not in partition(image).replicas, "what it advises can be done"


def test_the_only_replica_of_a_partition_is_not_advised_away():
    image = cluster(nodes=1, factor=1, partitions=1)
    (result,) = done(image, moves.drain(image, DrainNodeRequest(1))).moves
    assert result.message == (
        "t-0 has replicas on 1, and no other node could take that of node 1: there is none. Add a node"
    )


def test_who_removes_a_node_that_nothing_moves_off_is_not_told_to_wait():
    image = cluster(nodes=3, factor=3, partitions=7)
    done(image, moves.drain(image, DrainNodeRequest(3)))
    with pytest.raises(InvalidRequest, match=r"there is none\. Add a node") as caught:
        moves.drain(image, DrainNodeRequest(3, remove=True))
    assert "t-0, t-1, t-2, t-3, t-4 and 2 more, and nothing moves them" in str(caught.value)
    join(image, 4)
    assert "Use `ringlog cluster drain 3` again" in refused(image, 3)
    done(image, moves.drain(image, DrainNodeRequest(3)))
    with pytest.raises(PartitionBusy, match="which are being moved"):
        moves.drain(image, DrainNodeRequest(3, remove=True))


def test_a_topic_that_only_a_drained_node_could_keep_is_refused_at_once_and_with_the_reason():
    image = cluster(nodes=3, factor=3)
    done(image, moves.drain(image, DrainNodeRequest(3)))
    with pytest.raises(InvalidRequest, match="drain 3 --undo"):
        create_topic(image, CreateTopicRequest("new", 1, 3), shards=1, default_partitions=1, nodes=3)
    done(image, create_topic(image, CreateTopicRequest("new", 1, 2), shards=1, default_partitions=1, nodes=3))
    done(image, moves.drain(image, DrainNodeRequest(3, undo=True)))
    done(
        image, create_topic(image, CreateTopicRequest("newer", 1, 3), shards=1, default_partitions=1, nodes=3)
    )


def test_a_topic_that_names_no_replicas_counts_on_no_drained_node():
    image = cluster(nodes=3, factor=2)
    done(image, moves.drain(image, DrainNodeRequest(3)))
    request = CreateTopicRequest("new", 1, -1)
    done(image, create_topic(image, request, shards=1, default_partitions=1, nodes=3))
    (number,) = image.topics["new"].partitions
    assert set(image.partitions[number].replicas) == {1, 2}
    for node_id in (1, 2):
        done(image, moves.drain(image, DrainNodeRequest(node_id)))
    with pytest.raises(InvalidRequest, match="0 nodes take replicas"):
        create_topic(image, CreateTopicRequest("newer", 1, -1), shards=1, default_partitions=1, nodes=3)


@pytest.mark.parametrize("factor", [3, -1])
def test_a_topic_waits_for_a_node_that_is_yet_to_come_in_the_place_of_a_drained_one(factor):
    image = cluster(nodes=3, factor=1)
    done(image, moves.drain(image, DrainNodeRequest(3)))
    request = CreateTopicRequest("new", 1, factor)
    with pytest.raises(NotEnoughBrokers):
        create_topic(image, request, shards=1, default_partitions=1, nodes=4)
    join(image, 4)
    done(image, create_topic(image, request, shards=1, default_partitions=1, nodes=4))
    (number,) = image.topics["new"].partitions
    assert set(image.partitions[number].replicas) == {1, 2, 4}


def test_more_partitions_that_only_a_drained_node_could_keep_are_refused_at_once_and_with_the_reason():
    image = cluster(nodes=3, factor=3)
    done(image, moves.drain(image, DrainNodeRequest(3)))
    active = ActiveController(image, [], session_ms=1_000, now_ms=0.0, nodes=3)
    with pytest.raises(InvalidRequest, match="drain 3 --undo"):
        active.judge(AddPartitionsRequest("t", 9), committed_version=9, now_ms=0.0)


@pytest.mark.parametrize("members", [3, 2], ids=["named by --cluster", "left out of --cluster"])
def test_a_topic_that_names_no_replicas_counts_on_no_node_that_was_removed(members):
    image = cluster(nodes=3, factor=1)
    active = ActiveController(image, [], session_ms=1_000, now_ms=0.0, nodes=members)

    def made(request) -> list[int]:
        outcome = active.judge(request, committed_version=9, now_ms=0.0)
        active.appended(outcome.records)
        return [len(one.replicas) for one in outcome.records if isinstance(one, Partition)]

    made(DrainNodeRequest(3))
    assert made(CreateTopicRequest("drained", 1, -1)) == [2]
    all_in_sync(active.planned)
    active.appended(brokers.fence(active.planned, 3))
    made(DrainNodeRequest(3, remove=True))
    assert made(CreateTopicRequest("removed", 1, -1)) == [2]


def test_a_topic_waits_for_a_node_that_was_never_there_also_when_another_one_was_removed_before():
    image = cluster(nodes=3, factor=1)
    done(image, moves.drain(image, DrainNodeRequest(3)))
    all_in_sync(image)
    for record in brokers.fence(image, 3):
        image.replay(record)
    done(image, moves.drain(image, DrainNodeRequest(3, remove=True)))
    members = 3  # 1 and 2, and 4, which is new
    active = ActiveController(image, [], session_ms=1_000, now_ms=0.0, nodes=members)
    with pytest.raises(NotEnoughBrokers):
        active.judge(CreateTopicRequest("new", 1, -1), committed_version=9, now_ms=0.0)


def test_a_drain_is_taken_back():
    image = cluster(nodes=4, factor=3)
    before = {number: (set(found.replicas), found.isr) for number, found in image.partitions.items()}
    done(image, moves.drain(image, DrainNodeRequest(1)))
    done(image, moves.drain(image, DrainNodeRequest(1, undo=True)))
    after = {number: (set(found.replicas), found.isr) for number, found in image.partitions.items()}
    assert after == before
    assert not image.brokers[1].draining


def refused(image: MetadataImage, node_id: int) -> str:
    with pytest.raises(RinglogError) as caught:
        moves.drain(image, DrainNodeRequest(node_id, remove=True))
    return str(caught.value)


def test_a_node_is_removed_when_it_is_drained_and_stopped_and_its_id_is_never_used_again():
    image = cluster(nodes=4, factor=2)
    assert "not drained" in refused(image, 4)
    done(image, moves.drain(image, DrainNodeRequest(4)))
    assert "still has replicas" in refused(image, 4)
    all_in_sync(image)
    assert "is running" in refused(image, 4)
    for record in brokers.fence(image, 4):
        image.replay(record)
    done(image, moves.drain(image, DrainNodeRequest(4, remove=True)))
    assert sorted(image.brokers) == [1, 2, 3] and image.removed == {4}
    again = MetadataImage()
    for record in image.records():
        again.replay(decode_record(encode_record(record)))
    for one in (image, again):
        with pytest.raises(ClusterMismatch, match="was removed from this cluster"):
            brokers.register(one, RegisterBrokerRequest(4, "new life", "new disk", [], "", shards=2))


def test_a_move_that_waited_for_min_insync_ends_when_that_is_lowered():
    image = cluster(nodes=4, factor=3, partitions=1)
    image.topics["t"].config["min.insync.replicas"] = "2"
    _, _, away = partition(image).replicas
    (new,) = {1, 2, 3, 4} - set(partition(image).replicas)
    for record in brokers.fence(image, away):
        image.replay(record)
    done(image, moves.reassign(image, ReassignRequest([PartitionMove("t", 0, [new, away])])))
    come_into_sync(image, new)
    assert partition(image).adding, "it waits: one would be left"
    before = partition(image)
    done(image, alter_topic(image, AlterTopicRequest("t", {"min.insync.replicas": "1"})))
    (after,) = isr.ended_moves(image)
    assert (after.adding, after.isr, after.partition_epoch) == ((), (new,), before.partition_epoch + 1)
    image.replay(after)
    assert isr.ended_moves(image) == [], "once is enough"
