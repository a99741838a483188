"""Plans against a cluster of three nodes, called as Spark calls them, without Spark: a partition that nobody leads, or
whose new leader does not know yet where it ends, is waited for. It is never taken for an empty one, or for lost."""

from __future__ import annotations

import pytest

import ringlog
from ringlog.errors import RinglogError
from spark_bridge.batch_reader import BatchReader
from spark_bridge.options import source_options
from spark_bridge.stream_reader import StreamReader
from tests.support.cluster import TOPIC, ClusterTrial
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.stream_calls import SCHEMA, batch, offsets_of

pytestmark = pytest.mark.timeout(300)

PARTITIONS = 3
RECORDS = 50
VICTIM = 3


@pytest.fixture
def cluster(tmp_path):
    """A topic of which each node has a partition, and nobody else a copy of it."""
    with ClusterTrial(tmp_path, partitions=1) as trial:
        with ringlog.Admin(trial.bootstrap) as admin:
            admin.create_topic("lone", PARTITIONS, replication_factor=1)
        with ringlog.Producer(trial.bootstrap) as producer:
            for partition in range(PARTITIONS):
                producer.produce_many("lone", [b"x"] * RECORDS, partition=partition).result(30)
        yield trial


def options(cluster, streaming, **more):
    given = {"bootstrap": cluster.bootstrap, "columns": "partition,offset", "bridge": "off"}
    given |= {"subscribe": "lone", "operationTimeoutMs": "3000", **more}
    return source_options(given, streaming=streaming)


def leaderless(cluster):
    """The partitions that nobody leads, if somebody can tell."""
    return [one.index for one in cluster.topic("lone") if one.leader_node < 0]


def test_a_partition_without_a_leader_is_waited_for_and_not_left_out(cluster):
    stream = StreamReader(options(cluster, True, startingOffsets="earliest", failOnDataLoss="false"), SCHEMA)
    at, rows = batch(stream, stream.initialOffset())
    assert len(rows) == PARTITIONS * RECORDS

    cluster.nodes[VICTIM].kill_all()
    wait_for("a partition without a leader", lambda: leaderless(cluster), stretched(60))
    with pytest.raises(RinglogError) as refused:
        BatchReader(options(cluster, False), SCHEMA).partitions()
    assert refused.value.retriable
    with pytest.raises(RinglogError) as refused:
        batch(stream, at)
    assert refused.value.retriable
    assert "lostOffsets" not in stream.reportLatestOffset()

    cluster.start(VICTIM)
    wait_for("its leader", lambda: cluster.topic("lone") and not leaderless(cluster), stretched(60))
    assert batch(stream, at) == (at, []), "nothing is read twice"
    stream.stop()
    read = BatchReader(options(cluster, False, operationTimeoutMs="60000"), SCHEMA)
    found = [offsets_of(read.read(part)) for part in read.partitions()]
    assert found == [list(range(RECORDS))] * PARTITIONS


def test_a_stream_goes_on_exactly_where_it_was_when_its_leader_is_killed(cluster):
    def produce():
        with ringlog.Producer(cluster.bootstrap) as producer:
            producer.produce_many(TOPIC, [b"x"] * RECORDS, partition=0).result(60)

    produce()
    given = {"subscribe": TOPIC, "startingOffsets": "earliest", "operationTimeoutMs": "60000"}
    stream = StreamReader(options(cluster, True, **given), SCHEMA)
    at, seen = batch(stream, stream.initialOffset())
    for _ in range(2):
        leader = cluster.leader_of()
        cluster.nodes[leader].kill_all()
        at, rows = batch(stream, at)
        assert rows == [], "all was read before"
        produce()
        at, rows = batch(stream, at)
        seen += rows
        cluster.start(leader)
        cluster.wait_in_sync()
    stream.stop()
    assert seen == [(0, at) for at in range(3 * RECORDS)]
