"""Medians over rounds, ratios of what one round measured, goals: from samples made by hand."""

from __future__ import annotations

import pytest

from perf.compare.model import Durability, Latency, Samples, Throughput, Workload
from perf.compare.summary import goals_of, limits_of, ratios_of, results_of

D1, D2 = Durability.D1, Durability.D2
LIMITS = {
    "tcp_64k_gb_per_s": 2.0,
    "tcp_1m_gb_per_s": 1.0,
    "disk_direct_gb_per_s": 1.0,
    "durable_batch_gb_per_s": 0.5,
}


def rate(round_, system, durability, records_per_s, operation="produce", size=100):
    workload = Workload(size, 16, 1, durability)
    return Throughput(round_, system, workload, operation, 1_000_000, records_per_s, 2.0, 1.0, 50_000_000)


def waited(round_, system, durability, p99_ms, load="10pct"):
    workload = Workload(100, 16, 1, durability)
    return Latency(round_, system, workload, load, 1_000.0, 990.0, 1.0, p99_ms, 9.0, 20.0)


def test_a_result_is_the_median_over_rounds_with_its_costs():
    samples = Samples([rate(n, "ringlog", D2, r) for n, r in enumerate((1e6, 9e6, 2e6))])
    results, spreads = results_of(samples)
    assert results["produce.ringlog.100B.p16.x1.D2.records_per_s"] == 2e6
    assert results["produce.ringlog.100B.p16.x1.D2.mb_per_s"] == 200
    assert results["produce.ringlog.100B.p16.x1.D2.cpu_s_per_gb"] == pytest.approx(30)
    assert results["produce.ringlog.100B.p16.x1.D2.broker_rss_mb"] == 50
    assert spreads["produce.ringlog.100B.p16.x1.D2.records_per_s"] == pytest.approx(2)


def test_one_round_has_no_spread():
    results, spreads = results_of(Samples([rate(0, "ringlog", D2, 1e6)]))
    assert results["produce.ringlog.100B.p16.x1.D2.records_per_s"] == 1e6
    assert spreads == {}


def test_the_share_of_the_bound_pairs_a_round_with_its_own_limits():
    samples = Samples(
        [rate(0, "ringlog", D2, 1e6), rate(1, "ringlog", D2, 1e6)],
        limits=[{"round": 0, **LIMITS}, {"round": 1, **LIMITS, "durable_batch_gb_per_s": 0.25}],
    )
    results, _ = results_of(samples)
    assert results["produce.ringlog.100B.p16.x1.D2.share_of_bound"] == pytest.approx((0.2 + 0.4) / 2)
    assert limits_of(samples)["durable_batch_gb_per_s"] == pytest.approx(0.375)
    assert "round" not in limits_of(samples)


def test_a_ratio_pairs_what_one_round_measured():
    ours = [rate(0, "ringlog", D2, 10.0), rate(1, "ringlog", D2, 100.0)]
    theirs = [rate(0, "nats", D2, 5.0), rate(1, "nats", D2, 50.0), rate(2, "nats", D2, 1e9)]
    assert ratios_of(Samples(ours + theirs))["produce.100B.p16.x1.ringlog-D2/nats-D2"] == 2.0


def test_our_flushed_is_compared_with_their_written_but_never_the_other_way_round():
    samples = Samples(
        [rate(0, "ringlog", d, 4.0) for d in (D1, D2)] + [rate(0, "nats", d, 2.0) for d in (D1, D2)]
    )
    names = {name.rpartition(".")[2] for name in ratios_of(samples)}
    assert names == {"ringlog-D1/nats-D1", "ringlog-D2/nats-D1", "ringlog-D2/nats-D2"}


def test_kafka_is_held_up_with_the_better_of_its_clients():
    rounds = [(30.0, 10.0, 15.0), (30.0, 30.0, 15.0)]
    samples = Samples()
    for number, (ours, java, python) in enumerate(rounds):
        samples.throughput += [rate(number, "ringlog", D2, ours), rate(number, "kafka", D1, java)]
        samples.throughput.append(rate(number, "kafka-confluent", D1, python))
    ratios = ratios_of(samples)
    assert ratios["produce.100B.p16.x1.ringlog-D2/kafka-best-D1"] == (2.0 + 1.0) / 2
    assert ratios["produce.100B.p16.x1.ringlog-D2/kafka-D1"] == (3.0 + 1.0) / 2


def test_a_latency_ratio_is_of_the_same_load():
    samples = Samples(latency=[waited(0, "ringlog", D2, 2.0), waited(0, "kafka-confluent", D2, 8.0, "50pct")])
    assert ratios_of(samples) == {}
    samples.latency.append(waited(0, "kafka-confluent", D2, 8.0))
    assert ratios_of(samples) == {"p99.100B.10pct.ringlog-D2/kafka-confluent-D2": 0.25}


def test_goals_are_judged_by_the_workload_that_all_share():
    ratios = {
        "produce.100B.p1.x1.ringlog-D2/kafka-best-D1": 9.0,
        "produce.100B.p16.x1.ringlog-D2/kafka-best-D1": 1.5,
        "produce.1KB.p16.x1.ringlog-D2/kafka-confluent-D1": 5.0,
        "p99.1KB.10pct.ringlog-D2/kafka-confluent-D1": 0.6,
    }
    judged = {goal.ratio: goal.reached for goal in goals_of(ratios, {})}
    assert judged == {
        "produce.100B.p16.x1.ringlog-D2/kafka-best-D1": False,
        "produce.1KB.p16.x1.ringlog-D2/kafka-confluent-D1": True,
        "p99.1KB.10pct.ringlog-D2/kafka-confluent-D1": False,
    }


def test_rounds_of_later_runs_are_numbered_on():
    assert Samples().next_round == 0
    assert Samples([rate(4, "nats", D1, 1.0)], [waited(6, "nats", D1, 1.0)]).next_round == 7
