"""The network between nodes is cut, one way or both, under load, and healed: nothing acknowledged is lost.

Each node has a network of its own (`tests/support/wires.py`). A cut breaks no connection: nothing comes through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.amounts import amount, cases, chance
from tests.support.cluster import NODES, ClusterTrial
from tests.support.detours import DetourWires
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.wires import CLIENTS, Wires, open_wires

WRITABLE_WITHIN_S = 45.0
"""A session ends, clients notice the silence, and connections that were cut wait longer with every attempt."""
HEALED_WITHIN_S = 45.0
LOAD = {"rate": 300, "producers": 1, "consumers": 1}

Cut = Callable[[Wires, int, list[int]], None]
"""Cuts off a node; the others are named."""


def _island(wires: Wires, node: int, others: list[int]) -> None:
    """Clients reach it, and it reaches nobody: what it takes, it must not acknowledge."""
    for other in others:
        wires.cut_one_way(node, other)
        wires.cut_one_way(other, node)


def _gone(wires: Wires, node: int, others: list[int]) -> None:
    """Cut off from everybody."""
    _island(wires, node, [*others, CLIENTS] if wires.reach_clients else others)


def _mute(wires: Wires, node: int, others: list[int]) -> None:
    """It hears the others, and they do not hear it."""
    for other in others:
        wires.cut_one_way(node, other)


def _deaf(wires: Wires, node: int, others: list[int]) -> None:
    """The others hear it, and it does not hear them."""
    for other in others:
        wires.cut_one_way(other, node)


def _chain(wires: Wires, node: int, others: list[int]) -> None:
    """The node and one of the others do not hear each other, and the third one hears both."""
    _island(wires, node, others[:1])


def _ring(wires: Wires, node: int, others: list[int]) -> None:
    """Each hears the one before it only: 1 → 2 → 3 → 1. No two can talk, so there is no majority of anything."""
    ring = [node, *others]
    for at, one in enumerate(ring):
        wires.cut_one_way(ring[(at + 1) % len(ring)], one)


def _flapping(wires: Wires, node: int, others: list[int]) -> None:
    """There and gone again, faster than anybody can tell which, and gone at last."""
    for _ in range(6):
        _island(wires, node, others)
        time.sleep(0.15)
        wires.heal()
        time.sleep(0.1)
    _island(wires, node, others)


@pytest.fixture
def wires() -> Iterator[Wires]:
    found = open_wires(NODES)
    print(f"the nodes speak through {found.name}")
    yield found
    found.close()


def _leader(trial: ClusterTrial) -> int:
    return trial.leader_of(0)


def _controller(trial: ClusterTrial) -> int:
    return trial.controller()


Kinds = list[tuple[Cut, Callable[[ClusterTrial], int]]]
"""What is cut, and around whom."""
SHORT: Kinds = [(_island, _leader), (_gone, _controller), (_deaf, _leader)]
FULL: Kinds = [
    (cut, choose)
    for choose in (_leader, _controller)
    for cut in (_island, _gone, _mute, _deaf, _flapping, _chain, _ring)
]
REPLACED = (_island, _gone, _mute, _deaf, _flapping)
"""After these, others lead what the node led. In a chain it may go on leading; in a ring nobody can be elected."""
RING_S = 5.0
"""Long enough for every session and every leadership of the quorum to end."""


@pytest.mark.timeout(7200)
def test_a_node_that_is_cut_off_is_replaced_does_no_harm_and_comes_back(tmp_path: Path, wires: Wires):
    kinds = FULL if amount(0, 1) else SHORT
    some = [kinds[number % len(kinds)] for number in cases(short=len(SHORT), full=10 * len(FULL))]
    _cut_and_heal(ClusterTrial(tmp_path, wires=wires), wires, some)


@pytest.mark.timeout(7200)
def test_connections_that_are_held_up_between_nodes_do_no_harm(tmp_path: Path):
    """The form for machines without namespaces, so that it works where it is needed."""
    wires = DetourWires(NODES)
    try:
        _cut_and_heal(
            ClusterTrial(tmp_path, wires=wires), wires, [(_mute, _leader)] * len(cases(short=1, full=10))
        )
    finally:
        wires.close()


def _cut_and_heal(trial: ClusterTrial, wires: Wires, kinds: Kinds) -> None:
    rng = chance("cuts")
    with trial:
        with trial.load(**LOAD) as load:
            load.wait_warm(15)
            for cut, choose in kinds:
                time.sleep(rng.uniform(0.0, 0.3))
                node = choose(trial)
                others = [other for other in NODES if other != node]
                led = {one.index: one.leader_epoch for one in trial.topic() if one.leader_node == node}
                cut_at = time.monotonic()
                cut(wires, node, others)
                if cut in REPLACED:
                    wait_for(
                        "other leaders",
                        lambda: _leads_nothing(trial, node),  # noqa: B023
                        stretched(WRITABLE_WITHIN_S),
                    )
                if cut is _ring:
                    time.sleep(RING_S)
                    wires.heal()
                writable_s = load.wait_writable(cut_at, stretched(WRITABLE_WITHIN_S))
                wires.heal()
                healed_at = time.monotonic()
                trial.wait_in_sync(within_s=HEALED_WITHIN_S)
                print(
                    f"{cut.__name__}, {choose.__name__} {node}: writable after {writable_s:.2f} s, in sync "
                    f"{time.monotonic() - healed_at:.2f} s after the heal"
                )
                after = {one.index: one.leader_epoch for one in trial.topic()}
                assert cut not in REPLACED or all(after[index] > epoch for index, epoch in led.items())
        trial.judge(records_min=50)


def _leads_nothing(trial: ClusterTrial, node: int) -> bool:
    """Whether the others have replaced a node, as they say."""
    partitions = trial.topic(avoid=[node])
    return bool(partitions) and all(one.leader_node not in (node, -1) for one in partitions)
