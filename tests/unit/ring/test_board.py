"""The board: who is joined to whom, and how a process learns that a peer was replaced."""

from __future__ import annotations

import pytest

from ringlog.ring.board import ProcessState, Topology
from tests.support.joined import JoinedProcesses

TOPOLOGY = Topology(nets=1, shards=1)
CONTROLLER, NET, SHARD = 0, 1, 2


@pytest.fixture
def node():
    node = JoinedProcesses(TOPOLOGY)
    yield node
    node.close()


def test_every_pair_that_speaks_has_exactly_one_link():
    topology = Topology(nets=2, shards=3)
    pairs = [(link.front, link.back) for link in topology.links]
    assert len(set(pairs)) == len(pairs)
    nets, shards = [topology.net(n) for n in range(2)], [topology.shard(s) for s in range(3)]
    wanted = {(net, 0) for net in nets} | {(net, shard) for net in nets for shard in shards}
    assert set(pairs) == wanted | {(0, shard) for shard in shards}


def test_roles_and_numbers_agree():
    topology = Topology(nets=2, shards=3)
    assert [topology.role(topology.net(n)) for n in range(2)] == [("net", 0), ("net", 1)]
    assert [topology.role(topology.shard(s)) for s in range(3)] == [("shard", 0), ("shard", 1), ("shard", 2)]


def test_a_process_opens_all_its_links_at_first(node):
    changes = node.links(NET).refresh()
    assert sorted((change.peer, change.old) for change in changes) == [(CONTROLLER, None), (SHARD, None)]


def test_nothing_changes_until_the_board_moves(node):
    links = node.links(NET)
    links.refresh()
    assert links.refresh() == []


def test_a_replaced_peer_is_found_with_its_old_end(node):
    links = node.links(NET)
    old = {change.peer: change.new for change in links.refresh()}
    node.replace(SHARD)
    (change,) = links.refresh()
    assert (change.peer, change.old, links.ends[SHARD]) == (SHARD, old[SHARD], change.new)
    change.old.close()


def test_what_a_dead_peer_wrote_can_still_be_read_from_its_old_end(node):
    links, shard = node.links(NET), node.links(SHARD)
    links.refresh()
    shard.refresh()
    shard.ends[NET].send(b"last words")
    node.replace(SHARD)
    (change,) = links.refresh()
    assert [bytes(message.body) for message in change.old.reader.read_all()] == [b"last words"]
    change.old.close()


def test_a_peer_is_intact_until_its_link_is_made_anew(node):
    links = node.links(NET)
    links.refresh()
    assert links.intact(SHARD)
    node.replace(SHARD)
    assert not links.intact(SHARD)
    assert links.intact(CONTROLLER)


def test_a_peer_replaced_twice_is_found_once(node):
    links = node.links(NET)
    links.refresh()
    node.replace(SHARD)
    node.replace(SHARD)
    (change,) = links.refresh()
    change.old.close()
    assert links.intact(SHARD)


def test_nobody_sleeps_when_the_board_has_moved(node):
    links = node.links(NET)
    links.refresh()
    assert links.announce_wait()
    links.end_wait()
    node.board.bump()
    assert not links.announce_wait()


def test_nobody_sleeps_when_there_is_something_to_read(node):
    links, shard = node.links(NET), node.links(SHARD)
    links.refresh()
    shard.refresh()
    shard.ends[NET].send(b"news")
    assert not links.announce_wait()


def test_a_frame_wakes_a_process_that_sleeps(node):
    links, shard = node.links(NET), node.links(SHARD)
    links.refresh()
    shard.refresh()
    assert links.announce_wait()
    shard.ends[NET].send(b"news")
    assert links.bell.wait(1.0)


def test_all_links_are_pumped_also_behind_one_without_room(node):
    links, shard, controller = node.links(NET), node.links(SHARD), node.links(CONTROLLER)
    for one in (links, shard, controller):
        one.refresh()
    for peer in (CONTROLLER, SHARD):
        while links.ends[peer].outbox_bytes == 0:
            links.ends[peer].send(bytes(1 << 19))
    for message in shard.ends[NET].reader.read_all():
        assert len(message.body) == 1 << 19
    shard.ends[NET].reader.release()
    assert links.pump() is False
    assert links.ends[SHARD].outbox_bytes == 0


def test_states_and_stopping_are_seen_by_all(node):
    node.board.set_state(SHARD, ProcessState.READY)
    assert (node.board.state(SHARD), node.board.stopping) == (ProcessState.READY, False)
    node.board.start_stopping()
    assert node.board.stopping
