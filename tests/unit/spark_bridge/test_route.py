"""The way to the records: through a bridge that answers, else to the brokers, and that is said when it changes."""

from __future__ import annotations

import logging

import pytest

from spark_bridge import tasks
from spark_bridge.options import source_options
from spark_bridge.tasks import Route

OPTIONS = {"subscribe": "views", "bootstrap": "127.0.0.1:9400"}


@pytest.fixture
def bridges(monkeypatch):
    """The addresses at which a bridge of this cluster answers."""
    there: set[str] = set()
    monkeypatch.setattr(tasks, "unreachable", lambda address: None if address in there else "refused")
    monkeypatch.setattr(tasks, "bridge_cluster", lambda address, _: None if address in there else "refused")
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
