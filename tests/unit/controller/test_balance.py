"""Leaders by load: what moves from a busy node, what does not, and how it goes with preferred leaders."""

from __future__ import annotations

import msgspec
import pytest

from ringlog.controller import balance
from ringlog.controller.active import BALANCE_MS, ActiveController
from ringlog.controller.cluster_settings import alter_cluster
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Broker, Partition, Topic
from ringlog.errors import InvalidRequest
from ringlog.net.cluster_messages import BrokerHeartbeatRequest
from ringlog.net.messages import decode_body, encode_body
from ringlog.net.move_messages import AlterClusterRequest

MB = 1_000_000


def world(leaders: list[int], nodes: int = 3) -> MetadataImage:
    """A partition for each leader, with replicas on all nodes and this one preferred."""
    image = MetadataImage()
    for node in range(1, nodes + 1):
        image.replay(Broker(node, node, f"life-{node}", f"disk-{node}", (), "", fenced=False))
    image.replay(Topic(1, "t", {}))
    for index, leader in enumerate(leaders):
        replicas = (leader, *(node for node in range(1, nodes + 1) if node != leader))
        image.replay(
            Partition(
                index + 1,
                1,
                index,
                0,
                replicas=replicas,
                shards=tuple(node * 10 for node in replicas),
                leader=leader,
                isr=replicas,
            )
        )
    return image


def settle(image: MetadataImage, rates: dict[int, int], seconds: int = 120) -> list[tuple[int, int]]:
    """Let nodes report these rates every second; the changes of leaders, as (second, partition)."""
    loads = balance.LeaderLoads(0.0)
    changes = []
    for second in range(seconds):
        loads.heard(rates.items(), second * 1000.0)
        for record in loads.due(image, second * 1000.0):
            assert isinstance(record, Partition)
            image.replay(record)
            changes.append((second, record.partition))
    return changes


def led(image: MetadataImage) -> dict[int, int]:
    return {number: partition.leader for number, partition in image.partitions.items()}


def test_leaders_of_busy_partitions_are_spread_over_the_nodes():
    image = world([1, 1, 1, 1, 1, 1])
    changes = settle(image, dict.fromkeys(range(1, 7), 5 * MB))
    assert sorted(led(image).values()) == [1, 1, 2, 2, 3, 3]
    assert len(changes) == 4, "no partition moves twice"


def test_the_new_leader_is_the_preferred_one_with_its_own_shard_and_a_new_epoch():
    image = world([1, 1])
    before = dict(image.partitions)
    ((_, number),) = settle(image, {1: 5 * MB, 2: 5 * MB})
    old, new = before[number], image.partitions[number]
    assert new.leader == new.replicas[0] != 1 and set(new.replicas) == set(old.replicas)
    assert dict(zip(new.replicas, new.shards, strict=True)) == dict(
        zip(old.replicas, old.shards, strict=True)
    )
    assert (new.leader_epoch, new.partition_epoch) == (old.leader_epoch + 1, old.partition_epoch + 1)
    assert new.isr == old.isr


def test_a_burst_moves_nothing():
    image = world([1, 1, 1])
    assert not settle(image, {1: 5 * MB, 2: 5 * MB}, seconds=int(balance.LOOK_MS * balance.LOOKS / 1000))


def test_a_node_with_little_to_do_gives_nothing_away():
    assert not settle(world([1, 1, 1]), dict.fromkeys((1, 2, 3), MB // 4))


def test_one_large_partition_is_not_pushed_around():
    image = world([1, 2, 3])
    assert not settle(image, {1: 50 * MB, 2: MB, 3: MB})


def test_small_differences_move_nothing():
    assert not settle(
        world([1, 1, 2, 2, 3, 3]), {1: 6 * MB, 2: 5 * MB, 3: 5 * MB, 4: 5 * MB, 5: 4 * MB, 6: 5 * MB}
    )


@pytest.mark.parametrize("why", ["out of sync", "fenced", "leaving", "draining", "moving"])
def test_only_a_node_that_may_take_it_gets_a_leadership(why: str):
    image = world([1, 1], nodes=2)
    for number, partition in list(image.partitions.items()):
        if why == "out of sync":
            image.partitions[number] = msgspec.structs.replace(partition, isr=(1,))
        elif why == "moving":
            image.partitions[number] = msgspec.structs.replace(partition, removing=(2,))
    if why in ("fenced", "leaving", "draining"):
        image.replay(msgspec.structs.replace(image.brokers[2], **{why: True}))
    assert not settle(image, {1: 5 * MB, 2: 5 * MB})


def test_what_is_not_told_any_more_counts_no_longer():
    image, loads = world([1, 1, 1]), balance.LeaderLoads(0.0)
    loads.heard({1: 5 * MB, 2: 5 * MB}.items(), 0.0)
    assert not any(loads.due(image, second * 1000.0) for second in range(60))


def controller(image: MetadataImage) -> ActiveController:
    return ActiveController(image, [], session_ms=10_000, now_ms=0.0)


def beats(active: ActiveController, seconds: int) -> None:
    """All nodes live, and node 1 tells of what it leads, for so long."""
    for tick in range(seconds * 10):
        now_ms = tick * 100.0
        for node in (1, 2, 3):
            led_here = [(n, 5 * MB) for n, one in active.planned.partitions.items() if one.leader == node]
            request = BrokerHeartbeatRequest(node, node, 9, loads=led_here if tick % 10 == 0 else [])
            request = decode_body(encode_body(request), BrokerHeartbeatRequest)
            active.judge(request, committed_version=9, now_ms=now_ms)
        active.appended(active.due(now_ms))


def test_the_active_controller_spreads_load_and_leaders_do_not_go_back():
    active = controller(world([1, 1, 1]))
    beats(active, 60)
    spread = led(active.planned)
    assert sorted(spread.values()) == [1, 2, 3]
    epochs = {number: one.leader_epoch for number, one in active.planned.partitions.items()}
    beats(active, 10)
    assert {number: one.leader_epoch for number, one in active.planned.partitions.items()} == epochs
    assert BALANCE_MS < 10_000, "the return to preferred leaders was tried meanwhile"


def test_preferred_leaders_are_kept_when_the_cluster_is_set_to():
    image = world([1, 1, 1])
    for record in alter_cluster(image, AlterClusterRequest({"leader.balance": "preferred"})).records:
        image.replay(record)
    active = controller(image)
    beats(active, 60)
    assert set(led(active.planned).values()) == {1}


def test_a_balance_that_does_not_exist_is_refused():
    with pytest.raises(InvalidRequest, match="use load or preferred"):
        alter_cluster(world([1]), AlterClusterRequest({"leader.balance": "random"}))
