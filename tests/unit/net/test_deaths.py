"""A node is known to be dead when its host refuses all connections to it, and not when it is merely silent."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from ringlog.net.deaths import LOOK_AGAIN_MS, LOOKS_MAX, REFUSALS, Deaths
from ringlog.net.refusal import LOOK_MS_MAX, Look, addresses_of


def look(deaths: Deaths, now_ms: float, *refused: bool) -> float:
    """Node 2 is looked at so many times."""
    for one in refused:
        assert deaths.due(now_ms) == [2]
        deaths.looked(2, refused=one, now_ms=now_ms)
        now_ms += LOOK_AGAIN_MS
    return now_ms


def test_a_lost_connection_alone_is_no_death():
    deaths = Deaths()
    deaths.lost(2, 0.0)
    assert (deaths.dead, deaths.due(0.0), deaths.due(0.0)) == (set(), [2], []), "one look at a time"


def test_refusals_of_all_ports_in_a_row_are_one():
    deaths = Deaths()
    deaths.lost(2, 0.0)
    look(deaths, 0.0, *[True] * REFUSALS)
    assert deaths.dead == {2}
    assert deaths.next_ms == float("inf")


def test_a_process_that_is_being_replaced_is_none():
    deaths = Deaths()
    deaths.lost(2, 0.0)
    now_ms = look(deaths, 0.0, True, False, True, False)
    deaths.came(2)
    assert (deaths.dead, deaths.due(now_ms)) == (set(), [])


def test_processes_of_a_node_that_die_one_after_another_are_waited_for():
    deaths = Deaths()
    deaths.lost(2, 0.0)
    look(deaths, 0.0, False, False, *[True] * REFUSALS)
    assert deaths.dead == {2}


def test_who_does_not_refuse_is_left_to_its_session():
    deaths = Deaths()
    deaths.lost(2, 0.0)
    now_ms = look(deaths, 0.0, *[False] * LOOKS_MAX)
    assert (deaths.dead, deaths.due(now_ms)) == (set(), [])


def test_looks_go_on_when_the_last_words_of_a_node_arrive():
    deaths = Deaths()
    deaths.lost(2, 0.0)
    deaths.heard(2)
    assert deaths.due(0.0) == [2]


@pytest.mark.parametrize("sign", ["heard", "came"])
def test_a_node_that_was_reborn_is_not_dead(sign):
    deaths = Deaths()
    deaths.lost(2, 0.0)
    look(deaths, 0.0, *[True] * REFUSALS)
    getattr(deaths, sign)(2)
    assert deaths.dead == set()
    deaths.lost(2, 100.0)
    assert deaths.due(100.0) == [2]


def port_of(one: socket.socket) -> str:
    return f"tcp://127.0.0.1:{one.getsockname()[1]}"


def test_ports_are_refused_only_if_nobody_listens_at_any_of_them():
    with socket.socket() as listening, socket.socket() as silent:
        for one in (listening, silent):
            one.bind(("127.0.0.1", 0))
        listening.listen()
        both = addresses_of([port_of(listening), port_of(silent)])
        assert Look(addresses_of([port_of(silent)] * 2), 0.0).verdict(0.0) is True
        assert Look(both, 0.0).verdict(0.0) is False
        assert Look([], 0.0).verdict(0.0) is False, "of a node that was never reached nothing is known"


def test_a_host_that_does_not_answer_refuses_nothing():
    with ExitStack() as opened:
        deaf = opened.enter_context(socket.socket())
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(4):  # more than it has room for: the system answers nobody else
            caller = opened.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(deaf.getsockname())
        attempt = Look(addresses_of([port_of(deaf)]), 0.0)
        assert attempt.verdict(LOOK_MS_MAX - 1) is None
        assert attempt.verdict(LOOK_MS_MAX) is False


def test_a_name_that_cannot_be_found_is_no_address():
    assert addresses_of(["tcp://127.0.0.1:1", "tcp://no.such.host.invalid:1"]) == []
