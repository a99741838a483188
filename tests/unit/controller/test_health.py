"""What a cluster lacks is counted: nodes, leaders, replicas in sync."""

from __future__ import annotations

from typing import Any

from ringlog.controller.health import Health, health_of
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Broker, Partition, Topic
from ringlog.model import NO_LEADER


def image_of(*partitions: Partition, config: dict[str, str] | None = None) -> MetadataImage:
    image = MetadataImage()
    for node_id in (1, 2, 3):
        image.replay(Broker(node_id, node_id, "life", "disk", (), "", fenced=node_id == 3))
    image.replay(Topic(1, "t", config or {"min.insync.replicas": "2"}))
    for partition in partitions:
        image.replay(partition)
    return image


def partition(number: int, leader: int, isr: tuple[int, ...], **moving: Any) -> Partition:
    replicas = (1, 2, 3)
    return Partition(
        number, 1, number, 0, replicas=replicas, shards=(0, 0, 0), leader=leader, isr=isr, **moving
    )


def test_a_cluster_that_is_well_lacks_nothing():
    image = image_of(partition(0, 1, (1, 2, 3)))
    image.replay(Broker(3, 4, "life", "disk", (), "", fenced=False))
    assert health_of(image) == Health(3, 0, 0, 0, 0, 0)


def test_each_lack_is_counted_for_itself():
    image = image_of(
        partition(0, 1, (1, 2)),  # a replica lacks
        partition(1, 1, (1,)),  # too few for acks=all
        partition(2, NO_LEADER, (3,)),  # nobody leads
        partition(3, NO_LEADER, ()),  # and nobody may
    )
    assert health_of(image) == Health(3, 1, 2, 4, 3, 0)


def test_without_a_controller_nobody_is_counted_on_who_is_not_heard():
    image = image_of(partition(0, 1, (1, 2, 3)), partition(1, 2, (1, 2, 3)))
    image.replay(Broker(3, 4, "life", "disk", (), "", fenced=False))
    assert health_of(image, unheard=(2, 3)) == Health(3, 2, 1, 2, 2, 0)


def test_the_defaults_of_the_node_count_where_a_topic_says_nothing():
    image = image_of(partition(0, 1, (1,)), config={"flush": "ack"})
    assert health_of(image).below_min_isr_partitions == 0
    assert health_of(image, {"min.insync.replicas": "2"}).below_min_isr_partitions == 1


def test_replicas_that_are_being_made_are_not_missed():
    assert health_of(image_of(partition(0, 1, (1, 2), adding=(3,)))).under_replicated_partitions == 0


def test_partitions_that_may_have_lost_records_are_counted_until_their_topic_forbids_it():
    lossy = partition(0, 1, (1, 2, 3), unclean_epoch=4)
    allowed = {"unclean.leader.election.enable": "true"}
    assert health_of(image_of(lossy, config=allowed)).unclean_partitions == 1
    assert health_of(image_of(lossy), allowed).unclean_partitions == 1
    assert health_of(image_of(lossy)).unclean_partitions == 0
    assert health_of(image_of(partition(0, 1, (1, 2, 3)), config=allowed)).unclean_partitions == 0


def test_partitions_of_a_node_by_itself_lack_nothing():
    image = MetadataImage()
    image.replay(Topic(1, "t", {}))
    image.replay(Partition(1, 1, 0, 0))
    assert health_of(image) == Health(0, 0, 0, 0, 0, 0)
