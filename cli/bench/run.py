"""Runs the benchmarks: makes the topic, sends or reads, prints the figures."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cli.bench.plan import COUNT_DEFAULT, TOPIC_DEFAULT, Plan
from cli.bench.read import has_arrow, read_topic
from cli.bench.report import Outcome
from cli.bench.roundtrip import at_a_rate, one_at_a_time
from cli.bench.telling import OnProgress, Telling, bar
from cli.bench.values import make_values
from cli.bench.worker import run_share, run_workers
from cli.clients import open_admin, open_consumer, open_producer
from cli.invocation import pasteable
from cli.topic_errors import naming_near_topics
from ringlog.errors import InvalidRequest, NodeUnavailable, TopicExists
from ringlog.model import TopicPartition
from ringlog.node.topic_settings import effective_settings

if TYPE_CHECKING:
    from ringlog import Admin

_LIMIT = "max.message.bytes"


def run_produce(plan: Plan, *, as_json: bool) -> None:
    """`ringlog bench produce`."""
    with open_admin(plan.bootstrap) as admin:
        places = _ensure_topic(admin, plan)
        _require_room(admin, plan)
    telling = Telling("produce", plan, len(places), "send to acknowledgement", as_json)
    with telling.naming_topic_if_interrupted(), telling.measuring(plan.count_max) as on_progress:
        outcome = _fill(plan, on_progress)
    telling.print(outcome)
    telling.name_topic()


def _fill(plan: Plan, on_progress: OnProgress) -> Outcome:
    if plan.producers == 1:
        return run_share(plan, 0, on_progress, lambda: None)
    return run_workers(plan, on_progress)


def run_consume(plan: Plan, *, as_json: bool) -> None:
    """`ringlog bench consume`."""
    with open_admin(plan.bootstrap) as admin:
        if plan.topic == TOPIC_DEFAULT:
            places = _ensure_topic(admin, plan)
        else:
            with naming_near_topics(plan.topic, lambda: open_admin(plan.bootstrap)):
                places = _places(admin, plan.topic)
        there = _records(admin, plan.topic)
        # A topic of somebody's own is filled only if that was asked for.
        is_ours = plan.topic == TOPIC_DEFAULT
        wanted = plan.count_max if is_ours else plan.count
        if wanted is None:
            wanted = max(there, COUNT_DEFAULT) if is_ours else there
        if not wanted:
            sends = pasteable("bench", "produce", "--topic", plan.topic)
            raise InvalidRequest(
                f"topic {plan.topic} has no records. `{sends}` sends some, as --count would here"
            )
        # Readers see what is as durable as the topic asks for, and nothing else.
        asked = admin.describe_topic(plan.topic).config.get("flush", "ack")
        durability = "flushed" if asked == "ack" else "written"
        if there < wanted:
            _require_room(admin, plan)
    telling = Telling("consume", plan, len(places), "one poll", as_json)
    if there < wanted:
        print(f"ringlog: {plan.topic} has {there:,} records; adding {wanted - there:,}.", file=sys.stderr)
        fill = dataclasses.replace(plan, count=wanted - there, seconds=None, rate=None)
        with telling.naming_topic_if_interrupted(), bar(fill.count, None) as on_progress:
            _fill(fill, on_progress)
    with (
        open_consumer(plan.bootstrap, auto_offset_reset="earliest") as consumer,
        telling.measuring(wanted, durability) as on_progress,
    ):
        outcome = read_topic(
            consumer, places, count=wanted, seconds=plan.seconds, rate=plan.rate, on_progress=on_progress
        )
    outcome.durability = durability
    telling.print(outcome, arrow=has_arrow())


def run_latency(plan: Plan, *, as_json: bool) -> None:
    """`ringlog bench latency`."""
    with open_admin(plan.bootstrap) as admin:
        places = _ensure_topic(admin, plan)
        _require_room(admin, plan)
    telling = Telling("latency", plan, len(places), "send to arrival", as_json)
    value = make_values(1, plan.record_size)[0].tobytes()
    with (
        telling.naming_topic_if_interrupted(),
        open_producer(plan.bootstrap, acks=plan.acks, compression_type=plan.codec, linger_ms=0) as producer,
        open_consumer(plan.bootstrap, auto_offset_reset="latest") as consumer,
        telling.measuring(plan.count_max) as on_progress,
    ):
        consumer.assign(places)  # stands at the end when this returns, before the first record is sent
        if plan.rate is None:
            outcome = one_at_a_time(
                producer,
                consumer,
                plan.topic,
                value,
                count=plan.count,
                seconds=plan.seconds,
                on_progress=on_progress,
            )
        else:
            outcome = at_a_rate(
                producer,
                consumer,
                plan.topic,
                value,
                rate=plan.rate,
                count=plan.count,
                seconds=plan.seconds,
                on_progress=on_progress,
            )
    telling.print(outcome)


def _ensure_topic(admin: Admin, plan: Plan) -> list[TopicPartition]:
    """The partitions of the topic, which is created when it is missing, so that it takes such records."""
    is_enough = _batch_bytes_max(admin, {}) >= plan.batch_bytes_min
    config = {} if is_enough else {_LIMIT: str(plan.batch_bytes_min)}
    try:
        admin.create_topic(plan.topic, num_partitions=plan.partitions, config=config)
    except TopicExists:
        there = len(admin.describe_topic(plan.topic).partitions)
        if there != plan.partitions:
            print(f"ringlog: {plan.topic} is there already, with {there} partitions.", file=sys.stderr)
    return _places(admin, plan.topic)


def _places(admin: Admin, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, partition.index) for partition in admin.describe_topic(topic).partitions]


def _require_room(admin: Admin, plan: Plan) -> None:
    """InvalidRequest for a topic that was there before, and would refuse such records."""
    at_most = _batch_bytes_max(admin, admin.describe_topic(plan.topic).config)
    if plan.codec == "none" and at_most < plan.batch_bytes_min:
        alter = pasteable("topic", "alter", plan.topic, "--config", f"{_LIMIT}={plan.batch_bytes_min}")
        raise InvalidRequest(
            f"topic {plan.topic} takes batches of at most {at_most} bytes, and one record makes "
            f"{plan.batch_bytes_min}. Name another --topic, which is made to fit, or: {alter}"
        )


def _batch_bytes_max(admin: Admin, config: Mapping[str, str]) -> int:
    return int(effective_settings(config, admin.topic_defaults())[_LIMIT].value)


def _records(admin: Admin, topic: str) -> int:
    """Those that can be read now. Raises where that is not known: a topic is not filled by mistake."""
    partitions = admin.describe_topic(topic).partitions
    unknown = [p.index for p in partitions if not p.is_known]
    if unknown:
        raise NodeUnavailable(
            f"how many records {topic} has is not known: nobody answers for partition "
            f"{', '.join(map(str, unknown[:5]))}{', …' if unknown[5:] else ''}. `ringlog cluster describe` says why"
        )
    return sum(p.readable_offset - p.log_start_offset for p in partitions)
