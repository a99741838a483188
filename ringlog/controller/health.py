"""How a cluster is: nodes that are missing, and partitions that lack a leader or replicas. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ringlog.controller.image import MetadataImage
from ringlog.controller.topic_config import MIN_INSYNC, NOTHING, allows_unclean, settings_of
from ringlog.model import NO_LEADER


class Health(NamedTuple):
    """What one node knows of the whole cluster."""

    cluster_nodes: int
    """That have registered."""
    cluster_nodes_fenced: int
    """Of them, those that are silent, or have not caught up."""
    offline_partitions: int
    """Nobody leads them: they can be neither written nor read."""
    under_replicated_partitions: int
    """Fewer replicas are in sync than there should be."""
    below_min_isr_partitions: int
    """Fewer are in sync than min.insync.replicas: with acks=all they cannot be written."""
    unclean_partitions: int
    """They were led by a replica that was not in sync, and their topics still allow that: records may be lost."""


def health_of(
    image: MetadataImage, topic_defaults: Mapping[str, str] = NOTHING, unheard: Collection[int] = ()
) -> Health:
    """Count what is missing. Replicas that a reassignment has only begun to make are not missed. `unheard`: nodes that
    are counted as silent though the metadata do not say so, since nobody leads these."""
    offline = under_replicated = below = unclean = 0
    for topic in image.topics.values():
        allows = allows_unclean(topic.name, topic.config, topic_defaults)
        min_insync = int(settings_of(topic.name, topic.config, topic_defaults)[MIN_INSYNC])
        for number in topic.partitions:
            partition = image.partitions[number]
            if not partition.replicas:
                continue  # of a node by itself
            wanted = set(partition.replicas) - set(partition.adding)
            in_sync = set(partition.isr).difference(unheard)
            offline += partition.leader == NO_LEADER or partition.leader in unheard
            under_replicated += not wanted <= in_sync
            below += len(in_sync) < min_insync
            unclean += allows and partition.unclean_epoch >= 0
    fenced = sum(broker.fenced or broker.node_id in unheard for broker in image.brokers.values())
    return Health(len(image.brokers), fenced, offline, under_replicated, below, unclean)
