"""How long callers may wait: numbers that are none are refused typed, and nobody waits for himself."""

from __future__ import annotations

import threading

import pytest

from ringlog import Admin, Consumer, Producer
from ringlog.client import consumer as module
from ringlog.client.waits import WAIT_S_MAX, checked_ms, checked_s
from ringlog.errors import InvalidRequest, RequestTimeout
from ringlog.net.framing import Api
from tests.support.fake_connection import FakeConnection
from tests.support.model_broker import ModelBroker

NO_TIMES = [float("inf"), float("nan"), 10**400, "1", None]


@pytest.fixture
def reader(monkeypatch):
    monkeypatch.setattr(FakeConnection, "broker", ModelBroker(), raising=False)
    monkeypatch.setattr(module, "Connection", FakeConnection)
    consumer = Consumer(auto_offset_reset="earliest")
    consumer.assign([("t", 0)])
    return consumer


@pytest.mark.parametrize("wrong", NO_TIMES)
@pytest.mark.parametrize("poll", [Consumer.poll, Consumer.poll_arrow, Consumer.poll_batches])
def test_a_poll_refuses_a_time_that_is_none(reader, poll, wrong):
    with pytest.raises(InvalidRequest, match="timeout_ms must be a number"):
        poll(reader, timeout_ms=wrong)


@pytest.mark.parametrize("wrong", [one for one in NO_TIMES if one is not None])
def test_who_waits_for_records_refuses_a_time_that_is_none(node, wrong):
    with Producer(node.bootstrap) as producer:
        producer.produce("t", b"first").result(5)
        node.before = lambda header, body: b"" if header.api_key == Api.PRODUCE else None
        one = producer.produce("t", b"v")
        many = producer.produce_many("t", [b"v"])
        for wait in (one.result, one.exception, many.result, many.exception, producer.flush):
            with pytest.raises(InvalidRequest, match="timeout must be a number"):
                wait(wrong)
        node.before = lambda header, body: None
        node.restart()
        producer.flush(30)


@pytest.mark.parametrize("wrong", [float("inf"), float("nan")])
def test_a_question_without_end_is_refused_and_the_client_lives(node, wrong):
    with Admin(node.bootstrap) as admin:
        with pytest.raises(InvalidRequest, match="timeout must be a number"):
            admin.list_topics(timeout=wrong)
        assert admin.list_topics() == []


def test_a_negative_time_is_no_wait_and_the_longest_is_one():
    assert checked_s(-float("inf")) == checked_ms(-5) == 0.0
    assert checked_s(WAIT_S_MAX - 1) < WAIT_S_MAX
    threading.Event().wait(0.0)
    done = threading.Event()
    done.set()
    assert done.wait(checked_s(WAIT_S_MAX - 1)), "a lock takes it"


@pytest.mark.parametrize("timeout", [None, 30])
@pytest.mark.parametrize("form", ["result", "exception"])
@pytest.mark.parametrize("many", [False, True])
def test_a_callback_may_look_at_a_record_that_is_on_its_way_and_not_wait_for_it(node, timeout, form, many):
    said: list[object] = []
    called, handed_over = threading.Event(), threading.Event()

    def hold(header, body) -> None:
        # A record that is done before its callback is there has it called by whoever brings that.
        if header.api_key == Api.PRODUCE:
            handed_over.wait(5)

    node.before = hold
    with Producer(node.bootstrap) as producer:

        def on_delivery(future) -> None:
            more = producer.produce_many("t", [b"w"]) if many else producer.produce("t", b"w")
            for patience in (0, timeout):
                try:
                    getattr(more, form)(patience)
                except (InvalidRequest, RequestTimeout) as refused:
                    said.append(type(refused))
            said.append(getattr(future, form)(timeout))  # it is done: nothing to wait for
            called.set()

        # Not by result(): a batch may end on the thread that begins to wait for it, which may wait for others, too.
        producer.produce("t", b"v", on_delivery=on_delivery)
        handed_over.set()
        assert called.wait(5)
        producer.flush(5)
    assert said[:2] == [RequestTimeout, InvalidRequest]
    assert len(said) == 3
