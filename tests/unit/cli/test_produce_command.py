"""`ringlog produce`: every line becomes a record, and the report is true."""

from __future__ import annotations

import json

import pytest

from cli.failures import ExitCode
from ringlog.errors import BatchTooLarge, DeliveryTimeout


@pytest.fixture
def orders(node):
    return node.create("orders", 2).partitions


def values(log):
    return [record.value for record in log]


def test_lines_of_stdin_become_records(run, node, orders):
    result = run("produce", "orders", input="one\ntwo\n\nlast without end")
    assert values(orders[0]) == [b"one", b"two", b"", b"last without end"]
    assert result.exit_code == ExitCode.OK and result.stdout == ""
    assert "4 records acknowledged, flushed, in " in result.stderr


def test_lines_of_a_file_keep_every_byte(run, node, orders, tmp_path):
    path = tmp_path / "input"
    path.write_bytes(b"\xff\x00\r\n\xc3\n")
    run("produce", "orders", "--file", path)
    assert values(orders[0]) == [b"\xff\x00\r", b"\xc3"]


def test_keys_headers_and_partition(run, node, orders):
    run("produce", "orders", "-K", ":", "-H", "by=ann", "-H", "by=bob", "--partition", 1, input="k:v:w\n")
    [record] = orders[1]
    assert (record.key, record.value) == (b"k", b"v:w")
    assert record.headers == [("by", b"ann"), ("by", b"bob")]


def test_a_tab_separates_keys_when_it_is_written_as_one(run, node, orders):
    run("produce", "orders", "-K", "\\t", input="kk\tv\n")
    assert orders[0][0].key == b"kk"


def test_settings_reach_the_producer(run, node, orders):
    run("produce", "orders", "--acks", "1", "--codec", "zstd", "--bootstrap", "there:1", input="x\n")
    opened, _ = node.opened  # the other one asks whether the topic is there
    assert (opened["acks"], opened["compression_type"], opened["bootstrap"]) == ("1", "zstd", "there:1")


def test_json_in_json_out(run, node, orders):
    line = {"key": "k", "value": {"base64": "/w=="}, "headers": {"a": "1"}, "partition": 1, "timestamp": 5}
    result = run("produce", "orders", "--json", input=json.dumps(line) + "\n")
    [record] = orders[1]
    assert (record.key, record.value, record.timestamp) == (b"k", b"\xff", 5)
    assert record.headers == [("a", b"1")]
    report = json.loads(result.stdout)
    assert (report["records"], report["acknowledged"], report["durability"]) == (1, 1, "flushed")


def test_what_consume_prints_produce_takes(run, node, orders):
    node.append("orders", 0, b"\xff\n", key=b"k", headers=[("h", b"\x00")], timestamp=77)
    node.append("orders", 1, None)
    node.create("copy", 2)
    printed = run("consume", "orders", "--json").stdout
    assert run("produce", "copy", "--json", input=printed).exit_code == ExitCode.OK
    for before, after in zip(orders, node.topics["copy"].partitions, strict=True):
        assert [record._fields()[1:] for record in after] == [record._fields()[1:] for record in before]


@pytest.mark.parametrize(
    ("arguments", "good"),
    [(["--json"], '{"value":"%s"}'), (["-K", ":"], "k:%s"), (["-K", ":", "-H", "by=ann"], "k:%s")],
    ids=["json", "keys", "headers"],
)
def test_a_bad_line_is_named_and_those_before_it_are_sent(run, node, arguments, good):
    log = node.create("orders").partitions[0]
    result = run("produce", "orders", *arguments, input=f"{good % 1}\n{good % 2}\nhello\n{good % 3}\n")
    assert result.exit_code == ExitCode.REFUSED
    error = result.stderr.splitlines()[-1]
    assert "line 3" in error and "What stands before it was sent: 2 records acknowledged." in error
    assert values(log) == [b"1", b"2"]


def test_a_bad_first_line_says_that_nothing_was_sent(run, node, orders):
    [error] = run("produce", "orders", "-K", ":", input="hello\nk:1\n").stderr.splitlines()
    assert error.endswith("line 1 has no ':' that ends its key. Nothing was sent.")


def test_a_failure_is_told_with_what_was_acknowledged_before(run, node, orders, monkeypatch):
    monkeypatch.setattr("cli.produce_run.READ_BYTES", 2)
    node.fails_after, node.failure = 2, DeliveryTimeout("orders-0: not acknowledged within 120 s")
    result = run("produce", "orders", input="a\nb\nc\nd\n")
    assert result.exit_code == ExitCode.REFUSED
    told, error = result.stderr.splitlines()
    assert told.startswith("2 records acknowledged, flushed") and "may be in the log or not" in told
    assert "not acknowledged within 120 s" in error


@pytest.mark.parametrize("arguments", [[], ["--header", "by=ann"]], ids=["together", "one by one"])
def test_a_record_that_was_refused_is_not_said_to_be_in_the_log_maybe(
    run, node, orders, monkeypatch, arguments
):
    monkeypatch.setattr("cli.produce_run.READ_BYTES", 2)
    node.fails_after, node.failure = 2, BatchTooLarge("orders-0: a batch of 2000074 bytes")
    result = run("produce", "orders", *arguments, input="a\nb\nc\n")
    told, error = result.stderr.splitlines()
    assert told.startswith("2 records acknowledged, flushed") and told.endswith("; 1 record refused")
    assert "max.message.bytes" in error


def test_what_a_refused_record_follows_is_counted_also_in_the_error_for_programs(run, node):
    logs = node.create("copy", 2).partitions
    lines = [json.dumps({"value": str(at), "partition": at % 3}) for at in range(9)]
    result = run("produce", "copy", "--json", input="\n".join(lines))
    assert result.exit_code == ExitCode.REFUSED
    assert sum(map(len, logs)) == 6
    assert json.loads(result.stdout)["acknowledged"] == 6
    told = json.loads(result.stderr.splitlines()[-1])
    assert told["acknowledged"] == 6 and "--by-key" in told["message"]


def test_records_with_headers_before_a_refused_one_are_counted(run, node):
    node.create("copy", 1)
    lines = [{"value": "1", "headers": {"a": "1"}}, {"value": "2", "headers": {"a": "1"}, "partition": 1}]
    result = run("produce", "copy", "--json", input="\n".join(map(json.dumps, lines)))
    assert json.loads(result.stderr.splitlines()[-1])["acknowledged"] == 1


def test_a_failure_before_anything_was_sent_says_so_to_programs(run, node):
    result = run("produce", "nosuch", "--json", input='{"value": "1"}')
    assert (result.stdout, json.loads(result.stderr)["acknowledged"]) == ("", 0)


def test_by_key_copies_to_a_topic_with_fewer_partitions(run, node):
    node.create("six", 6)
    for at in range(12):
        node.append("six", at % 6, b"%d" % at, key=b"k" * at)
    copy = node.create("copy", 4).partitions
    printed = run("consume", "six", "--json").stdout
    result = run("produce", "copy", "--json", "--by-key", input=printed)
    assert result.exit_code == ExitCode.OK, result.stderr
    assert sorted(int(value) for log in copy for value in values(log)) == list(range(12))
    assert all(len(record.key or b"") % 4 == at for at, log in enumerate(copy) for record in log)


def test_the_least_durability_is_the_one_that_is_reported(run, node, orders):
    node.durability = "written"
    assert "acknowledged, written" in run("produce", "orders", input="a\n").stderr


def test_a_topic_that_is_made_on_the_way_is_told_of_with_near_names(run, node, orders):
    node.create_missing = True
    told, report = run("produce", "ordres", input="x\n").stderr.splitlines()
    assert told == "ringlog: there was no topic 'ordres': it is created. Did you mean 'orders'?"
    assert report.startswith("1 record acknowledged") and len(node.topics["ordres"].partitions[0]) == 1
    assert len(run("produce", "ordres", input="y\n").stderr.splitlines()) == 1, "it is there now"
    assert "is created" not in run("produce", "another", input="").stderr, "nothing was sent"


def test_nothing_to_send_is_said(run, node, orders):
    result = run("produce", "orders", input="")
    assert result.exit_code == ExitCode.OK and "nothing to send" in result.stderr


def test_wrong_usage_is_named(run, node, orders):
    for arguments in (["--json", "-K", ":"], ["-K", ""], ["--by-key"], ["-H", "novalue"], ["--acks", "2"]):
        assert run("produce", "orders", *arguments, input="").exit_code == ExitCode.USAGE
