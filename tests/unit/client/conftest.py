"""What tests of consumers share: a model of a node in place of their connection."""

from __future__ import annotations

import pytest

from ringlog.client import consumer as module
from tests.support.fake_connection import FakeConnection
from tests.support.model_broker import ModelBroker


@pytest.fixture
def broker(monkeypatch):
    broker = ModelBroker(partitions=3, lanes=2)
    monkeypatch.setattr(FakeConnection, "broker", broker, raising=False)
    monkeypatch.setattr(module, "Connection", FakeConnection)
    return broker
