"""`ringlog consume`: which records it prints, in which form, and when it stops."""

from __future__ import annotations

import json

import pytest

from cli.failures import ExitCode


@pytest.fixture
def orders(node):
    node.create("orders", 2)
    for number in range(6):
        node.append("orders", number % 2, b"v%d" % number, key=b"k", timestamp=1_700_000_000_000 + number)
    return node


def test_it_prints_all_values_and_stops_at_the_end(run, orders):
    result = run("consume", "orders")
    assert (result.stdout, result.stderr, result.exit_code) == ("v0\nv2\nv4\nv1\nv3\nv5\n", "", ExitCode.OK)


def test_records_that_come_while_it_reads_are_left_to_others(run, orders, monkeypatch):
    from tests.support.fake_client import FakeConsumer

    original = FakeConsumer.assign

    def assign(self, partitions):
        original(self, partitions)
        orders.append("orders", 0, b"too late")

    monkeypatch.setattr(FakeConsumer, "assign", assign)
    assert "too late" not in run("consume", "orders").stdout


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--from", "end", "--exit-at-end"], []),
        (["--from", "2"], ["0/2", "1/2"]),
        (["--from", "99"], []),
        (["--from", "1700000000003"], ["0/2", "1/1", "1/2"]),
        (["--from", "2023-11-14T22:13:20.004Z"], ["0/2", "1/2"]),
        (["--from", "time:1900000000000"], []),
        (["--partition", "1"], ["1/0", "1/1", "1/2"]),
        (["--partition", "1", "--count", "2"], ["1/0", "1/1"]),
        (["--count", "0"], []),
    ],
)
def test_a_place_a_partition_and_a_count_choose_records(run, orders, arguments, printed):
    result = run("consume", "orders", "--format", "%p/%o", *arguments)
    assert result.exit_code == ExitCode.OK
    assert result.stdout.splitlines() == printed


def test_an_offset_that_is_not_there_yet_is_said(run, orders):
    assert "there is no offset 99 yet; the next is 3" in run("consume", "orders", "--from", "99").stderr


def test_that_there_is_nothing_to_read_is_said_to_people(run, node, orders):
    node.create("empty", 2)
    result = run("consume", "empty")
    assert (result.stdout, result.exit_code) == ("", ExitCode.OK)
    assert result.stderr == "ringlog: empty has no records to show; --follow waits for some.\n"
    assert "orders has no records to show" in run("consume", "orders", "--from", "time:1900000000000").stderr
    for quiet in (["empty", "--json"], ["empty", "--count", 0], ["orders", "--count", 0], ["orders"]):
        assert run("consume", *quiet).stderr == ""


def test_following_ends_quietly_with_ctrl_c(run, orders):
    orders.interrupt_when_empty = True
    for arguments in (["--follow"], ["--from", "beginning", "-f"]):
        result = run("consume", "orders", *arguments)
        assert result.exit_code == ExitCode.INTERRUPTED
        assert (len(result.stdout.splitlines()), result.stderr) == (6, "")


def test_from_the_end_it_follows_by_itself(run, orders):
    orders.interrupt_when_empty = True
    result = run("consume", "orders", "--from", "end")
    assert (result.exit_code, result.stdout) == (ExitCode.INTERRUPTED, "")


def test_following_from_an_offset_that_is_not_there_shows_nothing_below_it(run, orders, monkeypatch):
    from tests.support.fake_client import FakeConsumer

    original = FakeConsumer.poll

    def poll(self, **how):
        if len(orders.topics["orders"].partitions[0]) < 6:
            orders.append("orders", 0, b"new")
        return original(self, **how)

    monkeypatch.setattr(FakeConsumer, "poll", poll)
    orders.interrupt_when_empty = True
    result = run("consume", "orders", "--from", "5", "--follow", "--format", "%p/%o")
    assert result.stdout.splitlines() == ["0/5"]


def test_json_has_one_object_per_line(run, orders):
    records = [json.loads(line) for line in run("consume", "orders", "--json").stdout.splitlines()]
    assert [record["value"] for record in records] == ["v0", "v2", "v4", "v1", "v3", "v5"]


def test_bytes_that_are_no_text_lose_nothing(run, node):
    node.create("blobs")
    node.append("blobs", 0, b"\xff\x00")
    assert run("consume", "blobs").stdout == "b'\\xff\\x00'\n"
    assert json.loads(run("consume", "blobs", "--json").stdout)["value"] == {"base64": "/wA="}


def test_wrong_usage_is_named(run, orders):
    for arguments in (["--from", "yesterday"], ["--format", "%q"], ["--format", "%v", "--json"]):
        assert run("consume", "orders", *arguments).exit_code == ExitCode.USAGE


def test_a_partition_that_is_not_there_is_named(run, orders):
    result = run("consume", "orders", "--partition", "7")
    assert result.exit_code == ExitCode.REFUSED
    assert "orders has no partition 7. It has 2 partitions" in result.stderr
