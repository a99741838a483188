"""What tests of clients share: a node that is a ROUTER in a thread, and a model of one in place of a consumer's
connection."""

from __future__ import annotations

import pytest

from ringlog import Producer
from ringlog.client import consumer as module
from tests.support.fake_connection import FakeConnection
from tests.support.model_broker import ModelBroker
from tests.support.router import RouterNode


@pytest.fixture
def broker(monkeypatch):
    broker = ModelBroker(partitions=3, lanes=2)
    monkeypatch.setattr(FakeConnection, "broker", broker, raising=False)
    monkeypatch.setattr(module, "Connection", FakeConnection)
    return broker


@pytest.fixture
def node():
    with RouterNode() as made:
        yield made


@pytest.fixture
def producer(node):
    with Producer(node.bootstrap) as made:
        yield made
