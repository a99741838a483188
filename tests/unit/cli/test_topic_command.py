"""`ringlog topic`: what it asks the node for, what it prints, and what it says when it cannot."""

from __future__ import annotations

import json

import pytest

from cli.failures import ExitCode
from ringlog.errors import UnknownTopic
from tests.support.fake_client import FakeAdmin


def lines(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_create_says_what_there_is_now(run, node):
    result = run("topic", "create", "orders", "--partitions", 3, "--config", "retention.ms=5")
    assert result.stdout == "Created orders with 3 partitions.\n"
    assert (len(node.topics["orders"].partitions), node.topics["orders"].config) == (3, {"retention.ms": "5"})


def test_create_without_a_number_leaves_it_to_the_node(run, node):
    assert lines(run("topic", "create", "orders", "--json")) == [
        {"name": "orders", "partitions": 4, "replicas": 1, "created": True}
    ]


def test_create_refuses_a_name_that_is_taken_and_says_what_to_do(run, node):
    node.create("orders")
    result = run("topic", "create", "orders")
    assert result.exit_code == ExitCode.REFUSED
    assert "is there already" in result.stderr and "--if-not-exists" in result.stderr
    again = run("topic", "create", "orders", "--if-not-exists", "--json")
    assert lines(again) == [{"name": "orders", "partitions": 1, "replicas": 1, "created": False}]


def test_list_shows_topics_by_name_without_internal_ones(run, node):
    for name in ("orders", "__offsets", "alarms"):
        node.create(name)
    node.append("orders", 0, b"12345")
    assert [line["name"] for line in lines(run("topic", "list", "--json"))] == ["alarms", "orders"]
    text = run("topic", "list").stdout.splitlines()
    assert text[0].split() == ["TOPIC", "PARTITIONS", "RECORDS", "MB"]
    assert text[2].split() == ["orders", "1", "1", "0.0"]
    assert "__offsets" in run("topic", "list", "--internal").stdout


def test_list_of_nothing_says_how_to_begin(run, node):
    result = run("topic", "list")
    assert (result.stdout, result.exit_code) == ("", ExitCode.OK)
    assert "ringlog topic create" in result.stderr
    assert run("topic", "list", "--json").output == ""


def test_describe_shows_partitions_and_settings(run, node):
    node.create("orders", 2).config["retention.ms"] = "5"
    node.append("orders", 1, b"12345")
    [described] = lines(run("topic", "describe", "orders", "--json"))
    assert described["config"] == {"retention.ms": "5"}
    assert [p["next_offset"] for p in described["partitions"]] == [0, 1]
    text = run("topic", "describe", "orders").stdout
    assert "orders: 2 partitions, 1 record" in text and "retention.ms = 5" in text


def test_what_a_silent_leader_knows_is_unknown(run, node):
    node.create("orders", 2).silent.add(1)
    node.append("orders", 0, b"12345")
    [described] = lines(run("topic", "describe", "orders", "--json"))
    assert described["partitions"][0]["next_offset"] == 1
    assert described["partitions"][1] == {
        "partition": 1,
        "leader": 0,
        "log_start_offset": None,
        "readable_offset": None,
        "next_offset": None,
        "bytes": None,
        "segments": None,
        "status": "no answer",
    }
    text = run("topic", "describe", "orders").stdout.splitlines()
    assert text[0] == "orders: 2 partitions, 1 record in 1 of them, the others are unknown"
    assert text[-1].split() == ["1", *["unknown"] * 5, "no", "answer"]
    [listed] = lines(run("topic", "list", "--json"))
    assert listed == {"name": "orders", "partitions": 2, "records": None, "bytes": None}
    assert run("topic", "list").stdout.splitlines()[1].split() == ["orders", "2", "unknown", "unknown"]


def test_describe_shows_all_settings_and_where_each_comes_from(run, node):
    node.create("orders").config["retention.ms"] = "5"
    node.topic_defaults["segment.ms"] = "60000"
    [described] = lines(run("topic", "describe", "orders", "--settings", "--json"))
    assert described["settings"]["segment.ms"] == {"value": "60000", "source": "node"}
    assert described["settings"]["retention.ms"] == {"value": "5", "source": "topic"}
    assert described["settings"]["cleanup.policy"] == {"value": "delete", "source": "default"}
    text = run("topic", "describe", "orders", "--settings").stdout
    assert ["retention.ms", "5", "topic"] in [line.split() for line in text.splitlines()]


def test_delete_records_says_where_partitions_begin_now(run, node):
    node.create("orders", 2)
    node.append("orders", 1, b"12345")
    result = run("topic", "delete-records", "orders", "0=0", "1=-1")
    assert result.stdout == "orders-0 begins at offset 0 now.\norders-1 begins at offset 1 now.\n"
    assert lines(run("topic", "delete-records", "orders", "1=1", "--json")) == [
        {"name": "orders", "partition": 1, "log_start_offset": 1}
    ]


def test_delete_records_refuses_what_is_no_partition_and_offset(run, node):
    result = run("topic", "delete-records", "orders", "0:5")
    assert result.exit_code == ExitCode.USAGE
    assert "PARTITION=OFFSET" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "describe", "ordres"],
        ["topic", "delete", "ordres"],
        ["topic", "alter", "ordres", "-c", "a=b"],
        ["topic", "add-partitions", "ordres", "5"],
        ["consume", "ordres"],
        ["produce", "ordres"],
    ],
)
def test_an_unknown_topic_is_answered_with_near_ones(run, node, arguments):
    node.create("orders")
    result = run(*arguments, input="x\n")
    assert result.exit_code == ExitCode.REFUSED
    assert result.stderr == "ringlog: there is no topic 'ordres'. Did you mean 'orders'?\n"


def test_alter_sets_and_resets(run, node):
    node.create("orders").config["segment.bytes"] = "1"
    result = run("topic", "alter", "orders", "-c", "retention.ms=7", "--reset", "segment.bytes")
    assert node.topics["orders"].config == {"retention.ms": "7"}
    assert result.stdout.splitlines() == [
        "orders: retention.ms = 7",
        "orders: segment.bytes is at its default",
    ]


@pytest.mark.parametrize(
    "arguments", [[], ["-c", "novalue"], ["-c", "a=1", "--reset", "a"], ["-c", "a=1", "-c", "a=2"]]
)
def test_alter_refuses_what_makes_no_sense(run, node, arguments):
    node.create("orders")
    assert run("topic", "alter", "orders", *arguments).exit_code == ExitCode.USAGE


def test_delete_takes_several_and_asks_nobody_who_is_no_terminal(run, node):
    for name in ("a", "b"):
        node.create(name)
    assert run("topic", "delete", "a", "b").stdout == "Deleted a.\nDeleted b.\n"
    assert node.topics == {}


def test_add_partitions_warns_that_keys_move(run, node):
    node.create("orders", 2)
    result = run("topic", "add-partitions", "orders", 5)
    assert len(node.topics["orders"].partitions) == 5
    assert "may go to another" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list", "--bootstrap", "there:1", "--json"],
        ["--bootstrap", "there:1", "--json", "topic", "list"],
        ["topic", "--json", "--bootstrap", "there:1", "list"],
        ["--bootstrap", "elsewhere:2", "topic", "list", "--json", "--bootstrap", "there:1"],
    ],
)
def test_bootstrap_and_json_may_stand_anywhere(run, node, arguments):
    node.create("orders")
    result = run(*arguments)
    assert node.opened[0]["bootstrap"] == "there:1"
    assert lines(result)[0]["name"] == "orders"


def test_bootstrap_comes_from_the_environment_unless_it_is_given(run, node):
    run("topic", "list", env={"RINGLOG_BOOTSTRAP": "env:1"})
    run("topic", "list", "--bootstrap", "given:1", env={"RINGLOG_BOOTSTRAP": "env:1"})
    run("--bootstrap", "given:1", "topic", "list", env={"RINGLOG_BOOTSTRAP": "env:1"})
    run("topic", "list")
    assert [opened["bootstrap"] for opened in node.opened] == [
        "env:1",
        "given:1",
        "given:1",
        "127.0.0.1:9400",
    ]


def test_a_partition_that_is_missing_is_not_called_a_missing_topic(run, node, monkeypatch):
    def refuse(*_):
        raise UnknownTopic("there is no orders-9")

    node.create("orders", 2)
    monkeypatch.setattr(FakeAdmin, "delete_records", refuse)
    result = run("topic", "delete-records", "orders", "9=1")
    assert result.exit_code == ExitCode.REFUSED
    assert result.stderr.startswith("ringlog: there is no orders-9") and "Did you mean" not in result.stderr
