"""The figures that a cluster is held to: failover, and what three replicas cost beside one node on the same cores."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from perf.cluster.failover import measure_failovers
from perf.cluster.nodes import BenchCluster, BenchNode, topic_on
from perf.cluster.scale import ClusterScale
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate
from perf.node.setting import chunk_of, send_all
from perf.stats import median, percentile
from ringlog.client.producer import Producer
from ringlog.limits import BROKER_SESSION_MS

PARTITIONS = 6


class ClusterBench(NamedTuple):
    """One run: a cluster, and a node by itself with as many shards as each node of the cluster."""

    scale: ClusterScale
    cluster: BenchCluster
    single: BenchNode


def produce(bench: ClusterBench) -> Result:
    """The same load on three replicas, each flushed before the ack, and on one node, in turns."""
    records, chunk = bench.scale.records, chunk_of(100)
    with (
        topic_on(bench.cluster.bootstrap, PARTITIONS, 3) as replicated,
        topic_on(bench.single.bootstrap, PARTITIONS, 1) as alone,
        Producer(bootstrap=bench.cluster.bootstrap) as to_cluster,
        Producer(bootstrap=bench.single.bootstrap) as to_single,
    ):
        samples, limits = alternate(
            lambda: records / send_all(to_cluster, replicated, chunk, records) / 1e6,
            lambda: records / send_all(to_single, alone, chunk, records) / 1e6,
            bench.scale.rounds,
        )
    return result_of(
        "cluster-produce-100",
        "produce_many of 100 B, 3 nodes on this machine, 3 replicas, flushed on all before the ack",
        "M rec/s",
        samples,
        "one node by itself, one shard",
        limits,
        Goal.share_of_limit(0.3),
        {"mb_per_s": median(samples) * 100},
    )


def ack_latency(bench: ClusterBench) -> list[Result]:
    """One record at a time: committed on three nodes, and flushed on one, in turns."""
    p99s: dict[str, list[float]] = {"cluster": [], "single": []}
    with (
        topic_on(bench.cluster.bootstrap, 1, 3) as replicated,
        topic_on(bench.single.bootstrap, 1, 1) as alone,
        Producer(bootstrap=bench.cluster.bootstrap, linger_ms=0) as to_cluster,
        Producer(bootstrap=bench.single.bootstrap, linger_ms=0) as to_single,
    ):

        def acked_ms(producer: Producer, topic: str, kind: str) -> float:
            waits = []
            for _ in range(bench.scale.latency_records):
                began = time.perf_counter()
                producer.produce(topic, b"x" * 100, partition=0).result(30)
                waits.append((time.perf_counter() - began) * 1e3)
            p99s[kind].append(percentile(waits, 99))
            return percentile(waits, 50)

        samples, limits = alternate(
            lambda: acked_ms(to_cluster, replicated, "cluster"),
            lambda: acked_ms(to_single, alone, "single"),
            bench.scale.rounds,
        )
    what = "ack of one record at a time, committed on 3 nodes"
    limit = "flushed on one node by itself"
    three = 3 * median(limits)
    return [
        result_of(
            "cluster-ack-p50", what, "ms", samples, limit, limits, Goal.at_most(three, "ms (3 × limit)")
        ),
        result_of(
            "cluster-ack-p99",
            f"{what}: p99",
            "ms",
            p99s["cluster"][1:],
            f"{limit}: p99",
            p99s["single"][1:],
            Goal.at_most(3 * median(p99s["single"][1:]), "ms (3 × limit)"),
        ),
    ]


def failover(bench: ClusterBench) -> list[Result]:
    """Kills of nodes that lead, under writes of all partitions."""
    kills = measure_failovers(bench.cluster, bench.scale.kills)
    times, pauses = [kill.writable_s for kill in kills], [kill.others_pause_s for kill in kills]
    session = [BROKER_SESSION_MS / 1000]
    limit = "the session after which a silent node is fenced"
    was_controller = [kill.writable_s for kill in kills if kill.was_controller]
    notes = {
        "kills": float(len(kills)),
        "max_s": max(times),
        "p99_of_controllers_s": percentile(was_controller, 99) if was_controller else 0.0,
        "kills_of_controllers": float(len(was_controller)),
    }
    p99 = percentile(times, 99)
    pause_ms = [percentile(pauses, 99) * 1e3]
    return [
        result_of(
            "failover-p50",
            "kill -9 of a leader's node → the next acknowledged write of all its partitions",
            "s",
            [median(times)],
            limit,
            session,
            Goal.at_most(1.0, "s"),
            notes,
        ),
        result_of(
            "failover-p99",
            f"the same: p99 of {len(kills)} kills",
            "s",
            [p99],
            limit,
            session,
            Goal.at_most(1.5, "s"),
        ),
        result_of(
            "failover-others",
            "the longest pause of partitions with other leaders meanwhile: p99 of the kills",
            "ms",
            pause_ms,
            limit,
            [BROKER_SESSION_MS],
            Goal.at_most(100, "ms"),
            {"p50_ms": median(pauses) * 1e3},
        ),
    ]


BENCHMARKS: dict[str, Callable[[ClusterBench], Result | list[Result]]] = {
    "ack-latency": ack_latency,
    "produce": produce,
    "failover": failover,
}
"""Latency first: it is that of low load, and nodes delete for a while what a benchmark of throughput leaves behind."""
