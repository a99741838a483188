"""The controller's watch over other nodes: who refuses everywhere is dead, until something is heard of it."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from ringlog.net.deaths import LOOK_AGAIN_MS, LOOKS_MAX
from ringlog.node.death_watch import DeathWatch

PASSES = 2 * LOOKS_MAX


def links_with(**sets: set[int]) -> SimpleNamespace:
    return SimpleNamespace(**{"lost": set(), "met": set(), "heard_of": set(), **sets})


def watch_over(*ports: socket.socket, leaving: bool = False) -> DeathWatch:
    """Node 2 listens at these; it was reached, and its connection broke."""
    endpoints = []
    for port in ports:
        port.bind(("127.0.0.1", 0))
        endpoints.append(f"tcp://127.0.0.1:{port.getsockname()[1]}")
    watch = DeathWatch({2: endpoints}, lambda node: leaving)
    watch.follow(links_with(met={2}), 0.0)
    return watch


def look(watch: DeathWatch, links: SimpleNamespace) -> None:
    for number in range(PASSES):
        watch.follow(links, number * LOOK_AGAIN_MS)


def test_a_node_that_refuses_at_all_its_ports_is_dead():
    with socket.socket() as one, socket.socket() as other:
        watch = watch_over(one, other)
        look(watch, links_with(lost={2}))
        assert watch.dead == {2}
        assert watch.next_ms(0.0) == float("inf"), "nothing is left to be done"


@pytest.mark.parametrize(("leaving", "level"), [(True, "INFO"), (False, "WARNING")])
def test_a_node_that_was_stopped_in_order_is_nobodys_worry(leaving, level, caplog):
    caplog.set_level("INFO")
    with socket.socket() as one:
        watch = watch_over(one, leaving=leaving)
        look(watch, links_with(lost={2}))
    assert [record.levelname for record in caplog.records] == [level]
    assert watch.dead == {2}, "it is fenced at once either way"


def test_a_node_one_of_whose_processes_lives_is_not():
    with socket.socket() as one, socket.socket() as other:
        watch = watch_over(one, other)
        other.listen()
        look(watch, links_with(lost={2}))
        assert watch.dead == set()


def test_a_node_that_was_never_reached_is_left_to_its_session():
    watch = DeathWatch({2: ["tcp://127.0.0.1:1"]})
    look(watch, links_with(lost={2}))
    assert watch.dead == set()


def test_what_is_heard_of_a_dead_node_says_that_it_lives_again():
    with socket.socket() as one:
        watch = watch_over(one)
        links = links_with(lost={2})
        look(watch, links)
        assert watch.dead == {2}
        links.heard_of.add(2)
        watch.follow(links, 10_000.0)
        assert watch.dead == set() and links.heard_of == set()
