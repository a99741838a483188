"""A Consumer says at once what it cannot be asked for."""

from __future__ import annotations

import pytest

from ringlog.client.commits import check_offsets
from ringlog.client.consumer import Consumer
from ringlog.client.consumer_settings import ConsumerSettings
from ringlog.client.settings import check_topic_name
from ringlog.controller.commands import create_topic
from ringlog.controller.image import MetadataImage
from ringlog.errors import InvalidRequest, UnknownTopic
from ringlog.net.messages import EARLIEST, LATEST, CreateTopicRequest
from tests.support.model_reading import TP, reading


def test_without_a_group_nothing_is_committed_or_subscribed():
    consumer = Consumer()
    for call in (lambda: consumer.subscribe(["t"]), consumer.commit, lambda: consumer.committed(("t", 0))):
        with pytest.raises(InvalidRequest, match="there is no group"):
            call()


@pytest.mark.parametrize("wrong", ["", "x" * 300, 7, "\ud800"])
def test_a_group_has_a_name(wrong):
    with pytest.raises(InvalidRequest, match="group_id"):
        Consumer(group_id=wrong)


@pytest.mark.parametrize("name", ["café", "", "a b", ".", "..", "x" * 201, "orders/eu"])
def test_a_name_that_no_topic_can_have_is_refused_with_the_rule(broker, name):
    with pytest.raises(InvalidRequest, match=r"topic '.*': use 1 to 200 of the letters a-z A-Z 0-9 \. _ -"):
        Consumer(group_id="g").subscribe(["orders", name])
    with pytest.raises(InvalidRequest, match=r"use 1 to 200|a partition is named like"):
        Consumer().assign([(name, 0)])
    with pytest.raises(InvalidRequest):  # which is why
        create_topic(MetadataImage(), CreateTopicRequest(name), shards=1, default_partitions=1)


@pytest.mark.parametrize("name", ["orders", "a.b_C-9", "x" * 200, "__offsets"])
def test_a_name_that_a_topic_can_have_is_taken(broker, name):
    check_topic_name(name)
    create_topic(MetadataImage(), CreateTopicRequest(name), shards=1, default_partitions=1, internal=True)


@pytest.mark.parametrize("wrong", [{"topics": [7]}, {"topics": ["\ud800"]}, {"pattern": "\ud800-*"}])
def test_what_is_subscribed_to_has_a_name(broker, wrong):
    with pytest.raises(InvalidRequest, match="topic"):
        Consumer(group_id="g").subscribe(**wrong)


@pytest.mark.parametrize("wrong", [-1, 2**63, 2**70, True, 1.5, "3", None])
def test_an_offset_that_no_log_could_have_is_refused_and_the_consumer_lives(broker, wrong):
    broker.append(0, 3)
    consumer = reading()
    for call in (
        lambda: consumer.seek(TP, wrong),
        lambda: consumer.assign([(*TP, wrong)]),
        lambda: check_offsets({TP: wrong}),
    ):
        with pytest.raises(InvalidRequest, match="an offset is a number"):
            call()
    with pytest.raises(InvalidRequest, match="a time is milliseconds"):
        consumer.offsets_for_times({TP: wrong})
    assert len(consumer.poll(0)) == 3
    consumer.seek(TP, 2**63 - 1)


@pytest.mark.parametrize("wrong", [(1, "\ud800"), (1, 7), (1, "x" * 5000), (1, "x", 2)])
def test_what_cannot_be_noted_with_a_commit_is_refused(wrong):
    with pytest.raises(InvalidRequest):
        check_offsets({TP: wrong})


def test_a_partition_that_is_not_there_cannot_be_assigned(broker):
    consumer = Consumer()
    with pytest.raises(UnknownTopic, match="partitions 0 to 2"):
        consumer.assign([("t", 7)])
    with pytest.raises(UnknownTopic):
        consumer.assign([("u", 0)])
    for wrong in ("t", ("t", -1), ("t", "0"), ("t", 0, -1), ("", 0)):
        with pytest.raises(InvalidRequest):
            consumer.assign([wrong])
    assert consumer.assignment() == set()


def test_a_poll_of_nothing_says_what_is_missing(broker):
    with Consumer() as consumer:
        for poll in (consumer.poll, consumer.poll_arrow, consumer.poll_batches, consumer.__next__):
            with pytest.raises(InvalidRequest, match=r"assign\(\) or subscribe\(\)"):
                poll()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto_offset_reset", "newest"),
        ("fetch_max_wait_ms", -1),
        ("fetch_max_bytes", 0),
        ("max_partition_fetch_bytes", 2**40),
        ("max_poll_records", 0),
        ("fetch_min_bytes", "1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(name, value):
    with pytest.raises(InvalidRequest, match=name):
        Consumer(**{name: value})


def test_settings_have_the_meaning_that_kafka_gives_them():
    assert ConsumerSettings().reset == LATEST
    assert ConsumerSettings(auto_offset_reset="earliest").reset == EARLIEST
    assert ConsumerSettings(auto_offset_reset="none").reset is None


@pytest.mark.parametrize("wrong", [1, "t", ("t",), ("t", 0, 0, 0), None])
def test_what_is_no_partition_is_named(wrong):
    with pytest.raises(InvalidRequest, match="a partition is named like"):
        Consumer().assign([wrong])


@pytest.mark.parametrize("wrong", [5, "t", [], [("t", 0)]])
def test_offsets_and_times_are_given_by_partition(broker, wrong):
    consumer = Consumer(group_id="g")
    for call in (consumer.commit, consumer.commit_async, consumer.offsets_for_times):
        with pytest.raises(InvalidRequest, match="give a dict such as"):
            call(wrong)


def test_what_is_no_callback_of_a_commit_is_refused_at_once(broker):
    with pytest.raises(InvalidRequest, match="a callback is a function"):
        Consumer(group_id="g").commit_async(callback=5)


@pytest.mark.parametrize("wrong", [-1, "5", 1.5, float("nan"), []])
def test_a_number_of_records_that_is_none_is_refused_and_nothing_is_taken(broker, wrong):
    broker.append(0, 3)
    consumer = reading()
    for poll in (consumer.poll, consumer.poll_arrow):
        with pytest.raises(InvalidRequest, match="max_records must be a whole number"):
            poll(0, max_records=wrong)
    assert len(consumer.poll(0)) == 3
