"""Three shards with real logs, in one of which a segment rots or is missing: it is mended from the others."""

from __future__ import annotations

import pytest

from ringlog.controller.records import Topic
from ringlog.limits import REPLICA_MEND_BYTES
from ringlog.log import cut_ahead
from ringlog.log.names import LOG, offset_name
from ringlog.net.wire_errors import NUMBERS
from ringlog.records.decode import decode
from tests.support.replica_calls import acked, produce, read
from tests.support.shard_cluster import NODES, PARTITION, ShardCluster

VALUES = [b"%d" % at for at in range(12)]


def filled(producer: int | None = None, **config: str) -> ShardCluster:
    """Twelve records in three sealed segments and an active one, of which nothing is in memory."""
    cluster = ShardCluster(**config)
    cluster.run()
    for at, value in enumerate(VALUES):
        if at and at % 3 == 0:
            for node in NODES:
                log(cluster, node).roll(0)
        produce(cluster, 1, value, producer=None if producer is None else (producer, 0, at))
        cluster.run()
    assert all(cluster.values(node) == VALUES for node in NODES)
    for node in NODES:
        cluster.worlds[node].evict_all()
    return cluster


def log(cluster: ShardCluster, node: int):
    return cluster.worlds[node].log(PARTITION)


def path_of(cluster: ShardCluster, node: int, base_offset: int) -> str:
    return f"{log(cluster, node).path}/{offset_name(base_offset, LOG)}"


def rot(cluster: ShardCluster, node: int, base_offset: int) -> None:
    path, disk = path_of(cluster, node, base_offset), cluster.disks[node]
    content = bytearray(disk.content(path))
    content[90] ^= 1
    disk.put(path, bytes(content))


def heal(cluster: ShardCluster) -> None:
    """Let everything happen that is due, also what the controller is asked for."""
    for _ in range(12):
        cluster.run(8, after_ms=50)
        cluster.answer_proposals()


def leave_alone(cluster: ShardCluster) -> None:
    """Nobody but node 1 is in sync, and it hears of nobody."""
    cluster.cut |= {2, 3}
    cluster.elect(1, isr=(1,))


def values_at(cluster: ShardCluster, offset: int) -> list[bytes]:
    return [record.value for record in decode(bytes(read(cluster, 1, offset).data))]


def aside(cluster: ShardCluster, node: int) -> list[str]:
    names = [name for name, _ in cluster.disks[node].list_dir(log(cluster, node).path)]
    return sorted(name.lstrip("0") for name in names if name.endswith((".bad", ".spare", ".cut")))


def must_be_whole(cluster: ShardCluster, *values: bytes) -> None:
    assert set(cluster.record.isr) == set(NODES)
    for node in NODES:
        cluster.worlds[node].evict_all()
        assert cluster.values(node) == [*VALUES, *values]
        assert log(cluster, node).hole_offset is None
        assert cluster.worlds[node].stats.counts["holed_partitions"] == 0


def test_a_leader_that_finds_rot_sends_the_reader_elsewhere_gives_way_and_is_mended():
    cluster = filled()
    rot(cluster, 1, 3)
    assert read(cluster, 1, 4).error == NUMBERS["NOT_LEADER"], "others have it"
    assert cluster.worlds[1].stats.counts["holed_partitions"] == 1
    heal(cluster)
    assert cluster.record.leader == 2
    must_be_whole(cluster)
    assert aside(cluster, 1) == ["3.log.bad", "9.log.bad"], "what was only set aside is gone again"
    produce(cluster, 2, b"after")
    cluster.run()
    assert acked(cluster, 2)[-1] == 12
    must_be_whole(cluster, b"after")


def test_a_leader_with_a_hole_takes_records_until_another_one_leads():
    cluster = filled()
    rot(cluster, 1, 3)
    read(cluster, 1, 4)
    produce(cluster, 1, b"meanwhile")
    cluster.run()
    heal(cluster)
    assert cluster.values(2)[:13] == [*VALUES, b"meanwhile"]
    must_be_whole(cluster, b"meanwhile")


@pytest.mark.parametrize("node", [1, 3])
def test_a_node_that_comes_back_without_a_file_is_mended(node):
    cluster = filled()
    cluster.disks[node].remove(path_of(cluster, node, 6))
    cluster.disks[node] = cluster.disks[node].after_death(node)
    cluster.relieve(node)
    cluster.start(node)
    cluster.run()
    assert log(cluster, node).hole_offset == 6 or log(cluster, node).next_offset >= 6
    heal(cluster)
    must_be_whole(cluster)


def test_a_shard_that_comes_back_in_sync_with_a_hole_leaves_first_and_is_mended():
    cluster = filled()
    cluster.disks[3].remove(path_of(cluster, 3, 0))
    cluster.disks[3] = cluster.disks[3].after_death(3)
    cluster.restart_shard(3)
    cluster.run()
    assert log(cluster, 3).hole_offset == 0, "it is counted on: nothing is cut"
    heal(cluster)
    must_be_whole(cluster)


def test_a_follower_whose_rot_is_found_leaves_the_in_sync_ones_and_is_mended():
    cluster = filled()
    rot(cluster, 3, 3)
    failed: list = []
    world = cluster.worlds[3]
    world.store.read(log(cluster, 3).name, 4, 100, done=failed.append, failed=failed.append)
    world.settle()
    assert log(cluster, 3).hole_offset == 3
    produce(cluster, 1, b"more")
    cluster.run()
    leader_epoch = cluster.record.leader_epoch
    heal(cluster)
    assert (cluster.record.leader, cluster.record.leader_epoch) == (1, leader_epoch + 1)
    must_be_whole(cluster, b"more")


def test_the_last_in_sync_replica_cuts_nothing_serves_what_it_has_and_says_what_it_lacks():
    cluster = filled(min_insync=1)
    leave_alone(cluster)
    rot(cluster, 1, 3)
    assert read(cluster, 1, 4).error == NUMBERS["CORRUPT_SEGMENT"]
    heal(cluster)
    assert values_at(cluster, 0) == VALUES[:3] and values_at(cluster, 6) == VALUES[6:9]
    produce(cluster, 1, b"more")
    cluster.run()
    assert acked(cluster, 1)[-1] == 12, "it goes on"
    assert (cluster.record.leader, cluster.record.isr, aside(cluster, 1)) == (1, (1,), [])
    assert cluster.worlds[1].stats.counts["holed_partitions"] == 1


def test_the_last_in_sync_replica_is_mended_as_soon_as_another_one_that_has_the_records_is_in_sync():
    cluster = filled(min_insync=1)
    leave_alone(cluster)
    rot(cluster, 1, 3)
    read(cluster, 1, 4)
    produce(cluster, 1, b"more")
    cluster.run()
    cluster.cut.clear()
    heal(cluster)
    must_be_whole(cluster, b"more")


def test_a_leader_that_lacks_the_same_takes_nothing_away_from_a_follower():
    cluster = filled(min_insync=1)
    leave_alone(cluster)
    for node in (1, 3):
        rot(cluster, node, 3)
        failed: list = []
        world = cluster.worlds[node]
        world.store.read(log(cluster, node).name, 4, 100, done=failed.append, failed=failed.append)
        world.settle()
    cluster.cut = {2}
    heal(cluster)
    assert (cluster.record.isr, log(cluster, 3).next_offset, aside(cluster, 3)) == ((1,), 12, [])
    cluster.cut.clear()
    heal(cluster)
    must_be_whole(cluster)


def test_a_hole_below_the_start_of_the_leaders_log_goes_with_what_was_deleted():
    cluster = filled()
    cluster.cut.add(3)
    cluster.tell(isr=(1, 2))
    rot(cluster, 3, 3)
    failed: list = []
    world = cluster.worlds[3]
    world.store.read(log(cluster, 3).name, 4, 100, done=failed.append, failed=failed.append)
    world.settle()
    cluster.worlds[1].store.move_start(log(cluster, 1).name, 6)
    cluster.run()
    cluster.cut.clear()
    heal(cluster)
    assert set(cluster.record.isr) == set(NODES)
    assert (log(cluster, 3).hole_offset, log(cluster, 3).log_start_offset) == (None, 6)
    assert aside(cluster, 3) == [], "nothing of it had to be fetched again"
    assert cluster.values(3) == VALUES[6:]


def find_rot(cluster, node, offset):
    failed: list = []
    world = cluster.worlds[node]
    world.store.read(log(cluster, node).name, offset, 100, done=failed.append, failed=failed.append)
    world.settle()
    assert log(cluster, node).hole_offset is not None


def with_two_holes():
    """A leader that is in sync by itself, and a follower, each with a hole elsewhere."""
    cluster = filled(min_insync=1)
    leave_alone(cluster)
    rot(cluster, 1, 6)
    rot(cluster, 3, 3)
    find_rot(cluster, 1, 7)
    find_rot(cluster, 3, 4)
    return cluster


@pytest.mark.parametrize("room", [True, False])
def test_a_leader_with_a_hole_elsewhere_takes_nothing_away_from_a_follower(room, monkeypatch):
    cluster = with_two_holes()
    if not room:
        monkeypatch.setattr(cluster.worlds[3].store.space, "has_room_for", lambda nbytes: False)
    cluster.cut = {2}
    heal(cluster)
    assert log(cluster, 3).next_offset == 12, "records 6 to 8 are in no other log"


def test_a_log_with_producers_is_cut_when_their_state_there_was_read_in_the_background(monkeypatch):
    monkeypatch.setattr(cut_ahead, "AT_ONCE_BYTES", 0)
    cluster = filled(producer=7)
    rot(cluster, 3, 6)
    disk = cluster.disks[3]
    disk.hold_all("read", offset_name(0, LOG))
    find_rot(cluster, 3, 7)
    heal(cluster)
    assert log(cluster, 3).next_offset == 12, "it is not cut before"
    produce(cluster, 1, b"meanwhile")
    cluster.run()
    disk.release_all()
    heal(cluster)
    assert aside(cluster, 3) == ["6.log.bad", "9.log.bad"]
    must_be_whole(cluster, b"meanwhile")


def test_who_waits_for_a_leader_with_a_hole_is_sent_little_and_seldom(monkeypatch):
    cluster = with_two_holes()
    read_from, asked = cluster.worlds[1].store.read, []

    def reading(name, offset, bytes_max, **others):
        asked.append((offset, bytes_max))
        read_from(name, offset, bytes_max, **others)

    monkeypatch.setattr(cluster.worlds[1].store, "read", reading)
    cluster.cut = {2}
    for _ in range(100):
        cluster.run(2, after_ms=50)  # ten seconds
    assert set(asked) == {(3, REPLICA_MEND_BYTES)} and 5 <= len(asked) <= 20


@pytest.mark.parametrize("room", [True, False])
def test_what_rots_unseen_at_the_leader_is_kept_by_who_is_mended_from_it(room, monkeypatch):
    cluster = filled(min_insync=1)
    cluster.cut.add(3)
    cluster.tell(isr=(1, 2))
    rot(cluster, 1, 3)  # found by a consumer
    rot(cluster, 2, 6)  # nobody knows
    if not room:
        monkeypatch.setattr(cluster.worlds[1].store.space, "has_room_for", lambda nbytes: False)
    assert read(cluster, 1, 4).error == NUMBERS["NOT_LEADER"]
    heal(cluster)
    names = [name for name, _ in cluster.disks[1].list_dir(log(cluster, 1).path)]
    assert [name for name in names if name.startswith(offset_name(6, LOG))], "in the log, or beside it"
    if not room:
        assert log(cluster, 1).next_offset == 12, "nothing is cut"


def why_it_cannot_follow(caplog) -> list[str]:
    return [message for message in caplog.messages if "cannot follow" in message]


@pytest.mark.parametrize(
    ("isr", "known"),
    [
        ((1,), "its leader, node 1, lacks records itself at offset 3, and no other replica is in sync"),
        ((1, 2), "its leader, node 1, lacks records itself at offset 3"),
    ],
)
def test_who_waits_for_a_leader_that_lacks_the_same_says_what_it_knows_once(isr, known, caplog):
    cluster = filled(min_insync=1)
    cluster.tell(isr=isr)
    rot(cluster, 1, 3)
    rot(cluster, 3, 3)
    find_rot(cluster, 3, 4)
    for _ in range(4):
        cluster.run(8, after_ms=50)
    assert [why.split(": ", 1)[1] for why in why_it_cannot_follow(caplog)] == [known]


def test_metadata_of_others_do_not_begin_conversations_anew():
    cluster = filled(min_insync=1)
    leave_alone(cluster)
    for node in (1, 3):
        rot(cluster, node, 3)
        find_rot(cluster, node, 4)
    cluster.cut = {2}
    heal(cluster)
    (fetcher,) = cluster.worlds[3].core.replication._fetchers.values()
    before = fetcher._session
    for at in range(10):
        cluster.worlds[3].delta(Topic(100 + at, f"unrelated-{at}", {}))
        cluster.run(1)
    assert fetcher._session == before
