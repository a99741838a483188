"""The way to the records: through a bridge that answers, else to the brokers, and that is said when it changes."""

from __future__ import annotations

import logging

import pytest

from spark_bridge import route as way
from spark_bridge.options import source_options
from spark_bridge.route import Pathfinder, Route

OPTIONS = {"subscribe": "views", "bootstrap": "127.0.0.1:9400"}


@pytest.fixture
def bridges(monkeypatch):
    """The addresses at which a bridge of this cluster answers."""
    there: set[str] = set()
    monkeypatch.setattr(way, "unreachable", lambda address: None if address in there else "refused")
    monkeypatch.setattr(way, "bridge_cluster", lambda address, _: None if address in there else "refused")
    return there


def found(caplog, before=None, **options):
    """The route, and the warnings on the way to it."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        return Route.found(source_options(OPTIONS | options), before), [one.message for one in caplog.records]


def test_a_query_without_a_bridge_says_so_once_and_how_to_have_one(bridges, caplog):
    route, (said,) = found(caplog)
    assert route.bridge is None
    assert "no bridge at 127.0.0.1:9500 (refused): tasks read the brokers directly" in said
    assert "ringlog start --bridge" in said
    assert found(caplog, route) == (Route(None), []), "the next micro-batch says nothing new"


def test_a_query_that_wants_none_is_told_nothing(bridges, caplog):
    assert found(caplog, bridge="off") == (Route(None), [])


def test_a_bridge_that_comes_is_used_and_one_that_goes_is_missed_aloud(bridges, caplog):
    bridges.add("127.0.0.1:9500")
    route, said = found(caplog, Route(None))
    assert (route.bridge, said) == ("127.0.0.1:9500", [])
    assert found(caplog, route) == (route, [])
    bridges.clear()
    route, (said,) = found(caplog, route)
    assert route.bridge is None
    assert "no bridge" in said


def test_a_bridge_that_was_named_and_is_not_there_is_missed_aloud(bridges, caplog):
    _, (said,) = found(caplog, bridge="10.0.0.9:9999")
    assert "no bridge at 10.0.0.9:9999" in said


def test_where_no_bridge_is_a_stream_looks_for_one_now_and_then_only(bridges, monkeypatch):
    looks, now_s = [], [100.0]
    look = way.bridge_cluster
    monkeypatch.setattr(way, "bridge_cluster", lambda *where: (looks.append(now_s[0]), look(*where))[1])
    path = Pathfinder(source_options(OPTIONS), clock=lambda: now_s[0])
    for now_s[0] in (100.0, 101.0, 129.0):
        assert path.route() == Route(None)
    assert looks == [100.0]
    bridges.add("127.0.0.1:9500")
    now_s[0] = 131.0
    assert path.route() == Route("127.0.0.1:9500")
    bridges.clear()
    assert path.route() == Route(None), "one that goes is missed at once"
    assert looks == [100.0, 131.0, 131.0]
