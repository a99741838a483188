"""How far moves have come, from metadata and the sizes that nodes told."""

from __future__ import annotations

from ringlog.client.move_progress import moves_in
from ringlog.model import TopicPartition
from ringlog.net.messages import MetadataReply, PartitionMetadata, TopicMetadata


def reply(*places: PartitionMetadata) -> MetadataReply:
    return MetadataReply("c", 1, 1, [], "", 0, [TopicMetadata("orders", "", 1, list(places), {})])


def moving(isr: list[int]) -> PartitionMetadata:
    return PartitionMetadata(0, 7, 0, 1, 1, [3, 4, 1], isr, [0, 0, 0], [3, 4], [1])


def test_the_new_replicas_are_compared_with_the_leaders_log():
    [move] = moves_in(reply(moving([1])), {(1, 7): 1_000, (3, 7): 250, (4, 7): 750})
    assert move.partition == TopicPartition("orders", 0)
    assert (move.adding, move.removing) == ([3, 4], [1])
    assert (move.moved_bytes, move.total_bytes, move.percent) == (1_000, 2_000, 50.0)


def test_a_node_that_was_not_heard_of_has_nothing_and_one_in_sync_has_all():
    [move] = moves_in(reply(moving([1, 3])), {(1, 7): 1_000})
    assert (move.moved_bytes, move.percent) == (1_000, 50.0)


def test_a_move_is_never_done_while_it_is_under_way():
    [move] = moves_in(reply(moving([1])), {(1, 7): 10, (3, 7): 99, (4, 7): 99})
    assert move.percent == 99.9
    [empty] = moves_in(reply(moving([1])), {})
    assert empty.percent == 0.0


def test_what_stays_where_it_is_is_no_move():
    assert moves_in(reply(PartitionMetadata(0, 7, 0, 1, 1, [1, 2], [1, 2], [0, 0])), {}) == []
