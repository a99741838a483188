"""`ringlog bench`: one object on one line, with figures that are true of what was done."""

from __future__ import annotations

import json
import time

import pytest

from cli.bench.sketch import Sketch
from cli.failures import ExitCode

FIGURES = {"records", "seconds", "records_per_s", "mb_per_s", "p50_ms", "p99_ms", "p999_ms", "durability"}


@pytest.fixture(autouse=True)
def no_arrow(monkeypatch):
    """The node in memory hands out records, not columns."""
    monkeypatch.setattr("cli.bench.run.has_arrow", lambda: False)
    monkeypatch.setattr("cli.bench.read.has_arrow", lambda: False)


def figures(result):
    assert result.exit_code == ExitCode.OK, result.output
    [line] = result.stdout.splitlines()
    found = json.loads(line)
    assert set(found) >= FIGURES
    assert found["p50_ms"] <= found["p99_ms"] <= found["p999_ms"] <= found["max_ms"]
    assert found["records_per_s"] == pytest.approx(found["records"] / found["seconds"], rel=0.01)
    return found


def records(node, topic):
    return sum(map(len, node.topics[topic].partitions))


def test_produce_sends_exactly_the_count_and_keeps_the_topic(run, node):
    found = figures(
        run("bench", "produce", "--count", 5003, "--record-size", 50, "--partitions", 3, "--json")
    )
    assert (found["records"], found["durability"], found["partitions"]) == (5003, "flushed", 3)
    assert records(node, "bench") == 5003
    assert found["mb_per_s"] == pytest.approx(5003 * 50 / found["seconds"] / 1e6, rel=0.01)
    assert {len(record.value) for log in node.topics["bench"].partitions for record in log} == {50}


@pytest.mark.parametrize("command", ["produce", "latency"])
def test_the_topic_is_made_so_that_it_takes_the_records(run, node, command):
    arguments = ("bench", command, "--count", 3, "--topic", "large", "--json")
    figures(run(*arguments, "--record-size", 3_000_000))
    assert int(node.topics["large"].config["max.message.bytes"]) >= 3_000_100
    figures(run("bench", command, "--count", 3, "--json"))
    [usual] = [topic for name, topic in node.topics.items() if name != "large"]
    assert usual.config == {}, "the node's own word counts where it is enough"


@pytest.mark.parametrize("command", ["produce", "consume", "latency"])
@pytest.mark.parametrize(("config", "defaults"), [({}, {}), ({}, {"max.message.bytes": "70000"})])
def test_a_topic_that_does_not_take_the_records_is_refused_before_any_is_sent(
    run, node, command, config, defaults
):
    node.create("there", 1).config = config
    node.topic_defaults = defaults
    result = run("bench", command, "--count", 3, "--topic", "there", "--record-size", 3_000_000)
    assert result.exit_code == ExitCode.REFUSED
    at_most = defaults.get("max.message.bytes", "1048637")
    assert f"topic there takes batches of at most {at_most} bytes" in result.stderr
    assert "topic alter there --config max.message.bytes=" in result.stderr
    assert records(node, "there") == 0


def test_a_topic_with_enough_records_is_read_whatever_size_new_ones_would_have(run, node):
    run("bench", "produce", "--count", 3, "--topic", "there")
    figures(run("bench", "consume", "--count", 3, "--topic", "there", "--record-size", 3_000_000, "--json"))


def test_produce_says_how_to_be_rid_of_what_it_wrote(run, node):
    result = run("bench", "produce", "--count", 10, "--topic", "mine")
    assert "Topic mine is kept: " in result.stderr and "topic delete mine` frees its space." in result.stderr
    assert not run("bench", "produce", "--count", 10, "--json").stderr


def test_produce_stops_when_the_time_is_over(run, node, monkeypatch):
    found = figures(run("bench", "produce", "--seconds", 0.2, "--rate", 2000, "--json"))
    assert 0.15 < found["seconds"] < 2
    assert 200 <= found["records"] <= 500


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_the_time_ends_it_though_the_next_record_is_due_much_later(run, node, command):
    node.create("bench", 1)
    for _ in range(5):
        node.append("bench", 0, b"x" * 100)
    began_s = time.monotonic()
    result = run("bench", command, "--count", 20, "--seconds", 0.2, "--rate", 0.01)
    assert time.monotonic() - began_s < 20
    assert result.exit_code == (ExitCode.OK if command == "consume" else ExitCode.REFUSED), result.output


def test_one_record_is_not_told_as_several(run, node):
    assert run("bench", "produce", "--count", 1).stdout.startswith("1 record in ")


def test_a_rate_is_kept_to(run, node):
    found = figures(run("bench", "produce", "--count", 300, "--rate", 1000, "--json"))
    assert found["records"] == 300
    assert found["seconds"] >= 0.28


def test_settings_reach_the_producer(run, node):
    run("bench", "produce", "--count", 10, "--acks", "1", "--codec", "lz4", "--topic", "mine")
    assert ("1", "lz4") in [(opened.get("acks"), opened.get("compression_type")) for opened in node.opened]
    assert records(node, "mine") == 10


def test_consume_fills_a_short_topic_and_reads_it_from_the_start(run, node):
    node.create("bench", 2)
    node.append("bench", 1, b"x" * 100)
    result = run("bench", "consume", "--count", 500, "--json")
    assert figures(result)["records"] == 500
    assert records(node, "bench") == 500
    assert "bench has 1 records; adding 499" in result.stderr


def test_consume_fills_nothing_when_there_is_enough(run, node):
    node.create("bench", 1)
    for _ in range(20):
        node.append("bench", 0, b"x" * 7)
    found = figures(run("bench", "consume", "--count", 10, "--json"))
    assert (found["records"], records(node, "bench")) == (10, 20)
    assert found["mb_per_s"] == pytest.approx(70 / found["seconds"] / 1e6, rel=0.01, abs=0.001)


def test_consume_makes_the_default_topic_so_that_it_takes_the_records(run, node):
    figures(run("bench", "consume", "--count", 3, "--record-size", 3_000_000, "--json"))
    assert int(node.topics["bench"].config["max.message.bytes"]) >= 3_000_100


def test_consume_of_a_topic_of_somebody_reads_what_is_there_and_writes_nothing_unasked(run, node):
    node.create("orders", 1)
    empty = run("bench", "consume", "--topic", "orders")
    assert empty.exit_code == ExitCode.REFUSED and "topic orders has no records" in empty.stderr
    for _ in range(20):
        node.append("orders", 0, b"x")
    assert figures(run("bench", "consume", "--topic", "orders", "--json"))["records"] == 20
    assert records(node, "orders") == 20


def test_consume_adds_nothing_to_a_topic_whose_records_are_not_known(run, node, monkeypatch):
    node.create("bench", 1)
    monkeypatch.setattr("ringlog.client.admin.PartitionInfo.is_known", property(lambda self: False))
    result = run("bench", "consume", "--count", 10)
    assert result.exit_code == ExitCode.RETRY, result.output
    assert "how many records bench has is not known: nobody answers for partition 0" in result.stderr
    assert records(node, "bench") == 0


def test_consume_of_another_topic_that_is_missing_is_refused_with_what_may_be_meant(run, node):
    node.create("orders", 1)
    result = run("bench", "consume", "--topic", "ordres")
    assert result.exit_code == ExitCode.REFUSED
    assert result.stderr == "ringlog: there is no topic 'ordres'. Did you mean 'orders'?\n"
    assert list(node.topics) == ["orders"]


@pytest.mark.parametrize("arguments", [["--count", 20], ["--count", 20, "--rate", 2000], ["--seconds", 0.1]])
def test_latency_times_every_record_to_its_arrival(run, node, arguments):
    found = figures(run("bench", "latency", "--json", *arguments))
    assert found["records"] == records(node, "bench-latency") > 0
    assert found["durability"] == "flushed"


def test_people_get_the_same_figures_in_words(run, node):
    text = run("bench", "produce", "--count", 100).stdout
    assert text.startswith("100 records in ") and "records/s" in text and "p99.9" in text


def test_wrong_usage_is_named(run, node):
    for arguments in (
        ["produce", "--record-size", 0],
        ["produce", "--rate", 0],
        ["latency", "--record-size", 7],
        ["latency", "--producers", 2],
        ["produce", "--codec", "brotli"],
    ):
        assert run("bench", *arguments).exit_code == ExitCode.USAGE


def test_a_stall_counts_for_all_that_was_due_behind_it():
    """Open loop: the clock stands still for no node."""
    from cli.bench.load import Load
    from cli.bench.values import make_values
    from tests.support.fake_client import FakeNode

    node = FakeNode()
    node.create("bench")
    producer = node.producer("")
    now = [0.0]
    original = producer.produce_many

    def slow(topic, values):
        now[0] += 0.5 if now[0] < 0.5 else 0.0  # the first call stalls for half a second
        return original(topic, values)

    def clock():
        now[0] += 0.0005
        return now[0]

    producer.produce_many = slow
    load = Load(producer, "bench", make_values(10, 1), count=500, seconds=None, rate=1000, clock=clock)
    outcome = load.run()
    assert outcome.records == 500
    assert outcome.latencies.quantile_ms(0.5) > 100, "records that were due during the stall waited, too"


def test_a_sketch_is_right_to_one_percent_and_adds_up():
    whole, parts = Sketch(), [Sketch(), Sketch()]
    for number in range(1, 10_001):
        whole.add(number * 1e-5)
        parts[number % 2].add(number * 1e-5)
    parts[0].merge(Sketch.load(json.loads(json.dumps(parts[1].dump()))))
    for share in (0.01, 0.5, 0.99, 0.999, 1.0):
        assert whole.quantile_ms(share) == pytest.approx(share * 100, rel=0.011)
        assert parts[0].quantile_ms(share) == whole.quantile_ms(share)
    assert Sketch().quantile_ms(0.5) == 0.0
