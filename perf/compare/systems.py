"""Who is compared: each broker, how it is started for a durability, and the clients that are measured against it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import NamedTuple

import msgspec

from perf.compare.clients import (
    aiokafka_client,
    kafka_clients,
    nats_client,
    rabbitmq_client,
    redis_client,
    ringlog_client,
)
from perf.compare.clients.api import ConsumerClient, PacedProducer, Place, ProducerClient, Reader
from perf.compare.clients.pipeline import connect
from perf.compare.model import Durability, Workload
from perf.peers.fetch import PeerUnavailable, python_package
from perf.peers.kafka import kafka
from perf.peers.nats import nats
from perf.peers.rabbitmq import rabbitmq
from perf.peers.redis import redis
from perf.peers.settings import (
    AIOKAFKA,
    CONFLUENT_KAFKA,
    HIREDIS,
    KAFKA_TOPIC_D2,
    NATS_STREAM,
    RINGLOG_NODE,
    number_of,
)
from ringlog.client.admin import Admin
from ringlog.node.embedded import embedded
from tuning.advice.processes import advise_processes
from tuning.advice.setting import Policy
from tuning.doctor.read_facts import read_facts
from tuning.probe.measured import Measured

D0, D1, D2 = Durability.D0, Durability.D1, Durability.D2


class Broker(NamedTuple):
    """A broker that runs."""

    address: str
    pid: int
    create_topic: Callable[[str, int, Durability], None]
    delete_topic: Callable[[str, int], None]


class Peer(NamedTuple):
    """A broker that can be started. `start` is given an empty directory, a durability, and whether it may fetch."""

    name: str
    start: Callable[[str, Durability, bool], AbstractContextManager[Broker]]
    sessions: tuple[tuple[Durability, ...], ...]
    """Durabilities that one process serves; another one needs a new start."""
    systems: tuple[str, ...]
    """Its clients, by name."""

    def offered(self, workload: Workload) -> Workload:
        """The workload at the strongest durability up to the wanted one that this peer has.

        >>> PEERS["rabbitmq"].offered(Workload(100, 16, 1, D2)).name
        '100B.p16.x1.D1'
        """
        has = [durability for durabilities in self.sessions for durability in durabilities]
        strongest = max(
            (durability for durability in has if durability.value <= workload.durability.value),
            key=lambda durability: durability.value,
        )
        return msgspec.structs.replace(workload, durability=strongest)


class System(NamedTuple):
    """A client of a broker."""

    producer: Callable[[Place], ProducerClient]
    consumer: Callable[[Place], ConsumerClient]
    reader: Callable[[Place], Reader]
    """Reads the topic again to check what is in it, and takes what a sender sends."""
    sender: Callable[[Place], PacedProducer] | None = None
    """None: latency is not measured."""
    text_payload: bool = False
    """Sends one record of text again and again instead of the pool."""
    warm_up: int = 1
    """So many times the records: a client that compiles itself while it runs needs them to reach its speed."""
    python_api: bool = False
    """Measured for what Python users get; at D1 and D2 only."""


def _advised_shards(directory: str) -> int:
    """As many as `ringlog tune` advises for this machine, before it has measured anything."""
    unmeasured = Measured(engine="", budget_s=0.0, took_s=0.0)
    advice = advise_processes(read_facts(directory), unmeasured, Policy.BALANCED)
    return next(int(setting.value) for setting in advice if setting.name == "shards")


@contextmanager
def _ringlog(directory: str, durability: Durability, fetch: bool) -> Iterator[Broker]:
    tail_bytes = number_of(RINGLOG_NODE, "tail_bytes_per_shard")
    with embedded(
        shards=_advised_shards(directory), data_dir=directory, tail_bytes_per_shard=tail_bytes
    ) as node:

        def create(name: str, partitions: int, wanted: Durability) -> None:
            config = {"flush": "ack" if wanted is D2 else "os"}
            with Admin(node.bootstrap) as admin:
                admin.create_topic(name, num_partitions=partitions, config=config, timeout=120)

        def delete(name: str, partitions: int) -> None:
            with Admin(node.bootstrap) as admin:
                admin.delete_topic(name, timeout=120)

        yield Broker(node.bootstrap, node.pid, create, delete)


@contextmanager
def _kafka(directory: str, durability: Durability, fetch: bool) -> Iterator[Broker]:
    python_package("confluent_kafka", CONFLUENT_KAFKA, fetch=fetch)
    with suppress(PeerUnavailable):  # then its own worker says what is missing, and Kafka has other clients
        python_package("aiokafka", AIOKAFKA, fetch=fetch)
    with kafka(directory, fetch=fetch) as broker:

        def create(name: str, partitions: int, wanted: Durability) -> None:
            broker.create_topic(name, partitions, KAFKA_TOPIC_D2 if wanted is D2 else ())

        yield Broker(broker.bootstrap, broker.pid, create, lambda name, _: broker.delete_topic(name))


@contextmanager
def _nats(directory: str, durability: Durability, fetch: bool) -> Iterator[Broker]:
    with (
        nats(directory, durability.value, fetch=fetch) as server,
        nats_client.login(server.address) as asking,
    ):
        config = {name: json.loads(value) if value == "true" else value for name, value, _ in NATS_STREAM}

        def create(name: str, partitions: int, wanted: Durability) -> None:
            for number in range(partitions):
                stream = f"{name}-{number}"
                body = json.dumps({"name": stream, "subjects": [f"{name}.{number}"], **config}).encode()
                nats_client.request(asking, f"$JS.API.STREAM.CREATE.{stream}", body)

        def delete(name: str, partitions: int) -> None:
            for number in range(partitions):
                nats_client.request(asking, f"$JS.API.STREAM.DELETE.{name}-{number}", b"")

        yield Broker(server.address, server.pid, create, delete)


@contextmanager
def _redis(directory: str, durability: Durability, fetch: bool) -> Iterator[Broker]:
    python_package("hiredis", HIREDIS, fetch=fetch)
    with redis(directory, durability.value, fetch=fetch) as server:

        def create(name: str, partitions: int, wanted: Durability) -> None:
            """A stream begins with its first entry."""

        def delete(name: str, partitions: int) -> None:
            with connect(server.address) as asking:
                keys = [f"{name}-{number}" for number in range(partitions)]
                asking.sendall(redis_client.command("DEL", *keys))
                asking.recv(64)

        yield Broker(server.address, server.pid, create, delete)


@contextmanager
def _rabbitmq(directory: str, durability: Durability, fetch: bool) -> Iterator[Broker]:
    with rabbitmq(directory, fetch=fetch) as server:

        def create(name: str, partitions: int, wanted: Durability) -> None:
            rabbitmq_client.create_streams(server.address, name, partitions)

        def delete(name: str, partitions: int) -> None:
            rabbitmq_client.delete_streams(server.address, name, partitions)

        yield Broker(server.address, server.pid, create, delete)


PEERS = {
    peer.name: peer
    for peer in (
        Peer("ringlog", _ringlog, ((D0, D1, D2),), ("ringlog", "ringlog-single")),
        Peer("kafka", _kafka, ((D0, D1, D2),), ("kafka", "kafka-confluent", "kafka-aiokafka")),
        Peer("nats", _nats, ((D0, D1), (D2,)), ("nats",)),
        Peer("redis", _redis, ((D0, D1), (D2,)), ("redis",)),
        Peer("rabbitmq", _rabbitmq, ((D0, D1),), ("rabbitmq",)),
    )
}

SYSTEMS = {
    "ringlog": System(
        ringlog_client.ColumnProducer,
        ringlog_client.ColumnConsumer,
        ringlog_client.ColumnConsumer,
        ringlog_client.ColumnProducer,
    ),
    "ringlog-single": System(
        ringlog_client.SingleProducer,
        ringlog_client.SingleConsumer,
        ringlog_client.ColumnConsumer,
        python_api=True,
    ),
    "kafka": System(
        kafka_clients.JavaProducer,
        kafka_clients.JavaConsumer,
        kafka_clients.ConfluentConsumer,
        text_payload=True,
        warm_up=8,
    ),
    "kafka-confluent": System(
        kafka_clients.ConfluentProducer,
        kafka_clients.ConfluentConsumer,
        kafka_clients.ConfluentConsumer,
        kafka_clients.ConfluentProducer,
        python_api=True,
    ),
    "kafka-aiokafka": System(
        aiokafka_client.AioProducer,
        aiokafka_client.AioConsumer,
        kafka_clients.ConfluentConsumer,
        python_api=True,
    ),
    "nats": System(
        nats_client.NatsProducer,
        nats_client.NatsConsumer,
        nats_client.NatsConsumer,
        nats_client.NatsProducer,
    ),
    "redis": System(
        redis_client.RedisProducer,
        redis_client.RedisConsumer,
        redis_client.RedisConsumer,
        redis_client.RedisProducer,
    ),
    "rabbitmq": System(
        rabbitmq_client.RabbitmqProducer,
        rabbitmq_client.RabbitmqConsumer,
        rabbitmq_client.RabbitmqConsumer,
        rabbitmq_client.RabbitmqProducer,
    ),
}
