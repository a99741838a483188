"""Shards of three nodes that replicate through real rings, peer processes and sockets, while these come and go."""

from __future__ import annotations

import pytest

from ringlog.net import peer_agent
from ringlog.net.framing import Acks
from ringlog.ring.link import LinkEnd
from tests.support.peer_cluster import PEER, PeerCluster
from tests.support.shard_cluster import NODES, PARTITION


@pytest.fixture
def cluster():
    cluster = PeerCluster(max_message_bytes="4000000")
    yield cluster
    cluster.close()


def produce(cluster: PeerCluster, *values: bytes, node: int = 1) -> None:
    for value in values:
        cluster.worlds[node].produce(value, acks=Acks.ALL)


def acked(cluster: PeerCluster, count: int, node: int = 1) -> list[int]:
    """Offsets of records that were acknowledged, when so many were."""
    found: list[int] = []

    def enough() -> bool:
        found.extend(reply.produced.base_offset for reply in cluster.worlds[node].net.take())
        return len(found) >= count

    cluster.until(enough)
    return found


def same_everywhere(cluster: PeerCluster, values: list[bytes]) -> None:
    cluster.until(lambda: all(cluster.values(node) == values for node in NODES))


def test_records_are_committed_over_sockets(cluster):
    values = [b"%d" % number for number in range(20)]
    produce(cluster, *values)
    assert acked(cluster, 20) == list(range(20))
    same_everywhere(cluster, values)


@pytest.fixture(params=["memory", "sockets"])
def way(request, monkeypatch):
    """Of large answers: nodes of one host share memory, others do not. Asked for before the cluster."""
    if request.param == "sockets":
        monkeypatch.setattr(peer_agent, "share_landing", lambda: None)
    return request.param


def test_large_batches_are_lent_by_the_leader_and_arrive_whole(way, cluster):
    values = [bytes([number]) * 1_000_000 for number in range(9)]
    produce(cluster, *values)
    assert acked(cluster, 9) == list(range(9))
    same_everywhere(cluster, values)
    assert cluster.worlds[1].core.fetches._lent == {}, "all that was lent is given back"
    near = cluster.threads[1].agent._stats.counts["near_bytes_out"]
    assert near > 2 * sum(map(len, values)) if way == "memory" else near == 0


@pytest.mark.parametrize("node", [1, 2], ids=["of the leader", "of a follower"])
def test_a_peer_process_dies_and_its_successor_goes_on(cluster, node):
    produce(cluster, b"a")
    acked(cluster, 1)
    cluster.peer_dies(node)
    produce(cluster, b"b")
    cluster.run(30)
    assert cluster.worlds[1].net.take() == [], "not all have it"
    cluster.peer_returns(node)
    assert acked(cluster, 1) == [1]
    same_everywhere(cluster, [b"a", b"b"])


def test_a_new_leader_is_followed_through_other_calls(cluster):
    produce(cluster, b"a")
    acked(cluster, 1)
    cluster.elect(3)
    produce(cluster, b"b", node=3)
    assert acked(cluster, 1, node=3) == [1]
    same_everywhere(cluster, [b"a", b"b"])


def test_a_node_that_was_removed_and_is_back_before_anybody_looked_is_called_anew(cluster):
    produce(cluster, b"a")
    acked(cluster, 1)
    cluster.removed_and_back(2, told=3)
    agent = cluster.threads[3].agent
    cluster.until(lambda: agent.service.image.version == cluster.threads[3].version)
    cluster.until(lambda: all(call.is_ready for call in agent.service.calls.values()))


def test_a_shard_that_restarts_under_a_new_registration_is_heard_again(cluster):
    produce(cluster, b"a")
    acked(cluster, 1)
    cluster.lose_power(2)
    cluster.start(2)
    produce(cluster, b"b")
    assert acked(cluster, 1) == [1]
    same_everywhere(cluster, [b"a", b"b"])


def test_a_registration_that_is_renewed_under_a_living_shard_is_heard_at_the_leader(cluster):
    produce(cluster, b"a")
    acked(cluster, 1)
    cluster.epochs[2] += 1
    for node in NODES:
        cluster.worlds[node].delta(*cluster._brokers())
    cluster._tell_brokers()
    leader = cluster.worlds[1].core.hosting.hosted[PARTITION].replica.leader
    cluster.until(lambda: leader.followers[2].node_epoch == cluster.epochs[2])
    produce(cluster, b"b")
    assert acked(cluster, 1) == [1]


def test_a_full_ring_of_a_shard_that_stands_still_loses_nothing(way, cluster):
    """Its answers wait; when it goes on, all is there."""
    produce(cluster, b"a")
    acked(cluster, 1)
    end: LinkEnd = cluster.threads[2].shard.ends[PEER]
    carry, cluster._carry = cluster._carry, lambda node: None if node == 2 else carry(node)
    values = [bytes([number]) * 500_000 for number in range(8)]
    produce(cluster, *values)
    cluster.until(lambda: cluster.values(3) == [b"a", *values])
    assert cluster.worlds[1].net.take() == [] and not end.closed
    cluster._carry = carry
    assert len(acked(cluster, 8)) == 8
    same_everywhere(cluster, [b"a", *values])
