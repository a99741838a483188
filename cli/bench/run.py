"""Runs the benchmarks: makes the topic, shows progress, prints the figures."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cli.bench.plan import COUNT_DEFAULT, Plan
from cli.bench.read import has_arrow, read_topic
from cli.bench.report import Outcome, figures, people_text, speed_text
from cli.bench.roundtrip import at_a_rate, one_at_a_time
from cli.bench.values import make_values
from cli.bench.worker import run_share, run_workers
from cli.clients import open_admin, open_consumer, open_producer
from cli.invocation import pasteable
from cli.output import print_json
from cli.screen import progress_bar
from ringlog.errors import InvalidRequest, TopicExists
from ringlog.model import TopicPartition
from ringlog.node.topic_settings import effective_settings

if TYPE_CHECKING:
    from ringlog import Admin

_LIMIT = "max.message.bytes"


def run_produce(plan: Plan, *, as_json: bool) -> None:
    """`ringlog bench produce`."""
    with open_admin(plan.bootstrap) as admin:
        partitions = len(_ensure_topic(admin, plan))
        _require_room(admin, plan)
    outcome = _fill(plan)
    _print("produce", outcome, plan, partitions, "send to acknowledgement", as_json)
    if not as_json:
        print(
            f"Topic {plan.topic} is kept: `{pasteable('topic', 'delete', plan.topic)}` frees its space.",
            file=sys.stderr,
        )


def _fill(plan: Plan) -> Outcome:
    with _progress(plan) as on_progress:
        if plan.producers == 1:
            return run_share(plan, 0, on_progress, lambda: None)
        return run_workers(plan, on_progress)


def run_consume(plan: Plan, *, as_json: bool) -> None:
    """`ringlog bench consume`."""
    with open_admin(plan.bootstrap) as admin:
        places = _ensure_topic(admin, plan)
        there = _records(admin, plan.topic)
        wanted = plan.count_max
        if wanted is None:
            wanted = max(there, COUNT_DEFAULT)
        # Readers see what is as durable as the topic asks for, and nothing else.
        asked = admin.describe_topic(plan.topic).config.get("flush", "ack")
        durability = "flushed" if asked == "ack" else "written"
        if there < wanted:
            _require_room(admin, plan)
            print(f"ringlog: {plan.topic} has {there:,} records; adding {wanted - there:,}.", file=sys.stderr)
            fill = dataclasses.replace(plan, count=wanted - there, seconds=None, rate=None)
            _fill(fill)
    with (
        open_consumer(plan.bootstrap, auto_offset_reset="earliest") as consumer,
        _progress(dataclasses.replace(plan, count=wanted)) as on_progress,
    ):
        outcome = read_topic(
            consumer, places, count=wanted, seconds=plan.seconds, rate=plan.rate, on_progress=on_progress
        )
    outcome.durability = durability
    _print("consume", outcome, plan, len(places), "one poll", as_json, arrow=has_arrow())


def run_latency(plan: Plan, *, as_json: bool) -> None:
    """`ringlog bench latency`."""
    with open_admin(plan.bootstrap) as admin:
        places = _ensure_topic(admin, plan)
        _require_room(admin, plan)
    value = make_values(1, plan.record_size)[0].tobytes()
    with (
        open_producer(plan.bootstrap, acks=plan.acks, compression_type=plan.codec, linger_ms=0) as producer,
        open_consumer(plan.bootstrap, auto_offset_reset="latest") as consumer,
        _progress(plan) as on_progress,
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
    _print("latency", outcome, plan, len(places), "send to arrival", as_json)


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
    described = admin.describe_topic(plan.topic)
    return [TopicPartition(plan.topic, partition.index) for partition in described.partitions]


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
    """Those that can be read now: of a partition whose leader does not answer, none."""
    partitions = admin.describe_topic(topic).partitions
    return sum(p.readable_offset - p.log_start_offset for p in partitions if p.is_known)


@contextmanager
def _progress(plan: Plan) -> Iterator[Callable[[Outcome], None]]:
    """A bar that is full when the count is reached, or the time when only that ends it."""
    by_time = plan.count_max is None
    with progress_bar(plan.seconds if by_time else plan.count_max) as update:

        def show(outcome: Outcome) -> None:
            now_s = time.monotonic()
            update(now_s - outcome.began_s if by_time else outcome.records, speed_text(outcome, now_s))

        yield show


def _print(
    what: str,
    outcome: Outcome,
    plan: Plan,
    partitions: int,
    latency_of: str,
    as_json: bool,
    **extra: object,
) -> None:
    if outcome.records == 0:
        raise InvalidRequest("no record was done in that time. Give it more --seconds.")
    found = figures(
        what,
        outcome,
        topic=plan.topic,
        record_size=plan.record_size,
        partitions=partitions,
        producers=plan.producers,
        acks=plan.acks,
        codec=plan.codec,
        rate=plan.rate,
        **extra,
    )
    if as_json:
        print_json(found)
    else:
        sys.stdout.write(people_text(found, latency_of))
