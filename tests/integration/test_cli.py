"""The `ringlog` command as people use it: real processes, a real node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from click.testing import CliRunner

import ringlog
from cli.commands import ringlog as ringlog_cli
from cli.failures import ExitCode
from cli.group import group

PROGRAM = [sys.executable, "-m", "cli.main"]
WITHIN_S = 60


@pytest.fixture
def ringlog_command(ringlog_node):
    """Run a command against the node; the result has stdout and stderr as text."""

    def run(*arguments, given: str | bytes = "", code: int = 0):
        data = given if isinstance(given, bytes) else given.encode()
        done = subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            input=data,
            capture_output=True,
            timeout=WITHIN_S,
            env={**os.environ, "RINGLOG_BOOTSTRAP": ringlog_node.bootstrap},
        )
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    return run


def objects(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_topic_lives_from_create_to_delete(ringlog_command):
    ringlog_command("topic", "create", "orders", "--partitions", 3)
    assert [topic["name"] for topic in objects(ringlog_command("topic", "list", "--json"))] == ["orders"]
    ringlog_command("topic", "alter", "orders", "--config", "segment.ms=3600000")
    ringlog_command("topic", "add-partitions", "orders", 5)
    [described] = objects(ringlog_command("topic", "describe", "orders", "--json"))
    assert (len(described["partitions"]), described["config"]["segment.ms"]) == (5, "3600000")
    wrong = ringlog_command("topic", "describe", "ordres", code=ExitCode.REFUSED)
    assert "Did you mean 'orders'?" in wrong.stderr
    again = ringlog_command("topic", "create", "orders", code=ExitCode.REFUSED)
    assert "--if-not-exists" in again.stderr
    ringlog_command("topic", "delete", "orders")
    assert objects(ringlog_command("topic", "list", "--json")) == []


def test_a_group_goes_on_where_it_stopped(ringlog_command):
    ringlog_command("topic", "create", "orders", "--partitions", 2)
    ringlog_command("produce", "orders", given="".join(f"{n}\n" for n in range(100)))
    first = ringlog_command("consume", "orders", "--group", "g", "--count", 30).stdout.split()
    rest = ringlog_command("consume", "orders", "--group", "g", "--exit-at-end").stdout.split()
    assert (len(first), len(rest)) == (30, 70)
    assert sorted(map(int, first + rest)) == list(range(100))
    wrong = ringlog_command("consume", "ordres", "--group", "g", code=ExitCode.REFUSED)
    assert "orders" in wrong.stderr
    ringlog_command("consume", "orders", "--group", "g", "--from", "7", code=ExitCode.USAGE)


def test_a_member_for_which_no_partition_is_left_ends_at_the_end(ringlog_command, ringlog_node):
    ringlog_command("topic", "create", "orders", "--partitions", 1)
    ringlog_command("produce", "orders", given="1\n2\n")
    with ringlog.Consumer(ringlog_node.bootstrap, "g", auto_offset_reset="earliest") as holder:
        holder.subscribe(["orders"])
        until_s = time.monotonic() + WITHIN_S
        while not holder.assignment():
            assert time.monotonic() < until_s
            holder.poll(50)
        done = ringlog_command("consume", "orders", "--group", "g", "--exit-at-end")
        assert (done.stdout, done.stderr) == ("", "")


def test_a_member_gets_its_share_before_it_ends_at_the_end(ringlog_command, ringlog_node):
    ringlog_command("topic", "create", "orders", "--partitions", 2)
    with ringlog.Consumer(ringlog_node.bootstrap, "g", enable_auto_commit=False) as holder:
        holder.subscribe(["orders"])
        while len(holder.assignment()) < 2:
            holder.poll(50)
        ringlog_command("produce", "orders", "--partition", 0, given="zero\n")
        ringlog_command("produce", "orders", "--partition", 1, given="one\n")
        done: list[str] = []
        share = threading.Thread(
            target=lambda: done.append(
                ringlog_command("consume", "orders", "--group", "g", "--exit-at-end").stdout
            )
        )
        share.start()
        time.sleep(2.0)  # the holder gives nothing up for so long: the member has nothing, and waits
        while share.is_alive():
            holder.poll(50)
        share.join()
    assert done in (["zero\n"], ["one\n"])


def test_a_group_is_looked_at_set_back_and_deleted(ringlog_command, ringlog_node):
    assert "no groups yet" in ringlog_command("group", "list").stderr
    assert "there is no group" in ringlog_command("group", "describe", "x", code=ExitCode.REFUSED).stderr
    ringlog_command("topic", "create", "orders", "--partitions", 2)
    ringlog_command("produce", "orders", "-K", ":", given="".join(f"{n}:{n}\n" for n in range(100)))
    settings = {"bootstrap": ringlog_node.bootstrap, "auto_offset_reset": "earliest", "client_id": "ann"}
    with ringlog.Consumer(group_id="billing", **settings) as consumer:
        consumer.subscribe(["orders"])
        read = 0
        while read < 100:
            read += len(consumer.poll(1000))
        consumer.commit()
        [listed] = objects(ringlog_command("group", "list", "--json"))
        assert listed == {
            "group": "billing",
            "state": "stable",
            "members": 1,
            "assignor": "sticky",
            "lag": 0,
            "lag_ms": 0,
        }
        text = ringlog_command("group", "describe", "billing").stdout
        assert "billing: stable, 1 member, 0 records behind" in text and "ann" in text
        busy = ringlog_command(
            "group", "reset", "billing", "--to", "earliest", "--execute", code=ExitCode.REFUSED
        )
        assert "has 1 members" in busy.stderr
    dry = ringlog_command("group", "reset", "billing", "--to", "earliest", "--json")
    assert [(plan["after"], plan["executed"]) for plan in objects(dry)] == [(0, False), (0, False)]
    [before] = objects(ringlog_command("group", "describe", "billing", "--json"))
    assert (before["lag"], before["lag_ms"]) == (0, 0), "nothing was changed"
    ringlog_command("group", "reset", "billing", "--topic", "orders", "-p", 1, "--shift", -10, "--execute")
    [shifted] = objects(ringlog_command("group", "describe", "billing", "--json"))
    assert shifted["lag"] == 10
    ringlog_command("group", "reset", "billing", "--to", "beginning", "--execute")
    [after] = objects(ringlog_command("group", "describe", "billing", "--json"))
    assert after["lag"] == 100
    assert 0 < after["lag_ms"] < 60_000
    late = ringlog_command("group", "reset", "billing", "--to", "2020-01-01T00:00:00Z", "--json")
    assert [plan["after"] for plan in objects(late)] == [0, 0]
    assert "Would delete billing with 2 offsets" in ringlog_command("group", "delete", "billing").stdout
    assert "Deleted billing" in ringlog_command("group", "delete", "billing", "--execute").stdout
    assert objects(ringlog_command("group", "list", "--json")) == []


def test_a_group_is_set_to_wherever_it_is_told_and_no_further_than_the_log_goes(
    ringlog_command, ringlog_node
):
    first_ms = 1_700_000_000_000
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        admin.create_topic("orders", 1)
        with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
            for number in range(10):
                producer.produce("orders", b"%d" % number, timestamp=first_ms + 1000 * number)
        settings = {"bootstrap": ringlog_node.bootstrap, "enable_auto_commit": False}
        with ringlog.Consumer(group_id="billing", **settings) as consumer:
            consumer.commit({("orders", 0): 5})
        reset = ["reset", "billing", "--execute", "--json", "--bootstrap", ringlog_node.bootstrap]
        before = 5
        for where, after in (
            (("--to", "latest"), 10),
            (("--to", "3"), 3),
            (("--shift", "4"), 7),
            (("--shift", "-2"), 5),
            (("--to", f"{first_ms + 1001}"), 2),
            (("--to", "2023-11-14T22:13:26Z"), 6),
            (("--to", "2033-01-01T00:00:00Z"), 10),
            (("--to", "offset:99"), 10),
            (("--shift", "-99"), 0),
        ):
            told = json.loads(CliRunner().invoke(group, [*reset, *where]).stdout)
            assert (told["before"], told["after"], told["executed"]) == (before, after, True), where
            [held] = admin.describe_group("billing").partitions
            assert held.committed == after, where
            before = after
    ringlog_command("group", "reset", "billing", "--to", "4", "--execute")
    read = ringlog_command("consume", "orders", "--group", "billing", "--exit-at-end").stdout.split()
    assert read == ["4", "5", "6", "7", "8", "9"], "and there it goes on"


def test_what_was_produced_is_consumed(ringlog_command):
    ringlog_command("topic", "create", "orders", "--partitions", 2)
    lines = "".join(f"k{number % 7}:{number}\n" for number in range(5000))
    told = ringlog_command("produce", "orders", "-K", ":", "--codec", "lz4", given=lines).stderr
    assert "5,000 records acknowledged, flushed" in told
    printed = ringlog_command("consume", "orders", "--format", "%k:%v").stdout.splitlines()
    assert sorted(printed) == sorted(lines.splitlines())
    by_key = [int(line.partition(":")[2]) for line in printed if line.startswith("k3:")]
    assert by_key == sorted(by_key), "records of a key keep their order"


@pytest.mark.parametrize(
    ("nbytes", "advice"),
    [
        (2 << 20, "Use --codec, or let it take more: ringlog topic alter orders --config max.message.bytes="),
        (10 << 20, "a frame takes 8388512. Use --codec, or send it in parts\n"),
        (33 << 20, "more than 33554432 bytes. Send it in parts\n"),
    ],
)
def test_what_to_do_with_a_line_that_is_too_large_is_told_in_the_words_of_the_command(
    ringlog_node, nbytes, advice
):
    given = b"small\n" + b"x" * nbytes
    done = CliRunner().invoke(
        ringlog_cli, ["produce", "orders", "--bootstrap", ringlog_node.bootstrap], given
    )
    assert done.exit_code == ExitCode.REFUSED
    assert advice in done.stderr
    assert "compression_type" not in done.stderr


def test_every_field_survives_the_way_through_json(ringlog_command):
    record = {
        "key": "k",
        "value": {"base64": "/wA="},
        "headers": [["by", "ann"], ["by", {"base64": "/w=="}]],
        "partition": 0,
        "timestamp": 1_700_000_000_000,
    }
    ringlog_command("topic", "create", "orders", "--partitions", 1)
    [report] = objects(ringlog_command("produce", "orders", "--json", given=json.dumps(record)))
    assert (report["acknowledged"], report["durability"]) == (1, "flushed")
    [unasked] = objects(
        ringlog_command("produce", "others", "--json", "--acks", "0", given=json.dumps(record))
    )
    assert (unasked["records"], unasked["acknowledged"]) == (1, 0)  # nobody says what became of it
    [found] = objects(ringlog_command("consume", "orders", "--json"))
    assert found == {**record, "topic": "orders", "offset": 0}
    assert ringlog_command("consume", "orders").stdout == "b'\\xff\\x00'\n"


def test_consume_begins_and_ends_where_it_is_told(ringlog_command):
    ringlog_command("topic", "create", "orders", "--partitions", 1)
    lines = [json.dumps({"value": str(n), "timestamp": 1_700_000_000_000 + n}) for n in range(10)]
    ringlog_command("produce", "orders", "--json", given="\n".join(lines))

    def values(*arguments):
        return ringlog_command("consume", "orders", *arguments).stdout.split()

    assert values("--from", "7") == ["7", "8", "9"]
    assert values("--from", "1700000000008") == ["8", "9"]
    assert values("--from", "2023-11-14T22:13:20.009Z") == ["9"]
    assert values("--from", "end", "--exit-at-end") == []
    assert values("--count", "2") == ["0", "1"]
    assert values("--from", "2030-01-01T00:00:00Z") == []


def test_following_shows_new_records_until_ctrl_c(ringlog_node, ringlog_command):
    ringlog_command("topic", "create", "orders", "--partitions", 1)
    follower = subprocess.Popen(
        [*PROGRAM, "consume", "orders", "--follow", "--bootstrap", ringlog_node.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert follower.stdout is not None and follower.stderr is not None
        ringlog_command("produce", "orders", given="late\n")
        assert follower.stdout.readline() == b"late\n"
        follower.send_signal(signal.SIGINT)
        rest, errors = follower.communicate(timeout=WITHIN_S)
    finally:
        follower.kill()
        follower.wait()
    assert (follower.returncode, rest, errors) == (ExitCode.INTERRUPTED, b"", b"")


def test_a_reader_that_goes_away_ends_consume_quietly(ringlog_node, ringlog_command):
    ringlog_command("produce", "orders", given="line\n" * 50_000)
    consume = " ".join([*PROGRAM, "consume", "orders", "--bootstrap", ringlog_node.bootstrap])
    done = subprocess.run(
        ["bash", "-c", f"{consume} | head -n 1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        timeout=WITHIN_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.OUTPUT_CLOSED, b"line\n", b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "--count", 2000, "--producers", 2],
        ["produce", "--seconds", 0.3, "--rate", 5000, "--acks", "1", "--codec", "zstd"],
        ["produce", "--count", 500, "--acks", "0"],
        ["consume", "--count", 3000],
        ["latency", "--count", 20],
        ["latency", "--rate", 200, "--seconds", 0.5],
    ],
)
def test_bench_prints_one_object_on_one_line(ringlog_command, arguments):
    [found] = objects(ringlog_command("bench", *arguments, "--json"))
    assert set(found) >= {
        "records",
        "seconds",
        "records_per_s",
        "mb_per_s",
        "p50_ms",
        "p99_ms",
        "p999_ms",
        "durability",
    }
    assert found["records"] > 0 and found["seconds"] > 0
    if "--count" in arguments:
        assert found["records"] == arguments[arguments.index("--count") + 1]
    expected = "none" if "--acks" in arguments and "0" in arguments else "flushed"
    assert found["durability"] == expected


def test_nobody_waits_long_for_a_node_that_is_not_there(tmp_path):
    began = time.monotonic()
    done = subprocess.run(
        [*PROGRAM, "topic", "list", "--bootstrap", "127.0.0.1:1"],
        capture_output=True,
        timeout=WITHIN_S,
        text=True,
    )
    assert done.returncode == ExitCode.RETRY
    assert "ringlog start" in done.stderr and done.stderr.count("\n") == 1
    assert time.monotonic() - began < 15


def test_a_node_is_started_looked_at_and_stopped(tmp_path):
    data_dir = str(tmp_path / "data")
    node = subprocess.Popen(
        [
            *PROGRAM,
            "start",
            "--data-dir",
            data_dir,
            "--listen",
            "tcp://127.0.0.1:0",
            "--shards",
            "1",
            "--no-pin",
            "--json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def run(*arguments):
        return subprocess.run(
            [*PROGRAM, *arguments, "--data-dir", data_dir], capture_output=True, timeout=WITHIN_S, text=True
        )

    try:
        assert node.stdout is not None
        ready = json.loads(node.stdout.readline())
        assert ready["pid"] == node.pid
        status = json.loads(run("status", "--json").stdout)
        assert status["wrong"] == [] and {p["role"] for p in status["processes"]} == {
            "controller",
            "net",
            "shard",
        }
        assert "Nothing is wrong." in run("status").stdout
        assert 'ringlog_up{role="shard",index="0"} 1' in run("metrics").stdout
        address = ready["endpoints"][0]
        with ringlog.Producer(bootstrap=address) as producer:
            producer.produce("warm", b"x", partition=2).result(WITHIN_S)
        named = run("status", "--bootstrap", address, "--json")
        assert named.returncode == ExitCode.OK
        hottest = json.loads(named.stdout)["hottest"]
        assert (hottest[0]["topic"], hottest[0]["partition"]) == ("warm", 2)
        assert 'ringlog_partition_records_in_total{topic="warm",partition="2",shard=' in run("metrics").stdout
        other = run("stop", "--bootstrap", "127.0.0.1:1")
        assert other.returncode == ExitCode.REFUSED and f"listens on {address}" in other.stderr
        second = run("start")
        assert second.returncode == ExitCode.REFUSED and f"pid {node.pid}" in second.stderr
        assert f"pid {node.pid}" in run("stop").stdout
        assert node.wait(WITHIN_S) == ExitCode.OK
    finally:
        node.kill()
        node.communicate()
    gone = run("status")
    assert gone.returncode == ExitCode.RETRY and "no node runs on" in gone.stderr


def test_ctrl_c_stops_a_node_cleanly(tmp_path):
    node = subprocess.Popen(
        [
            *PROGRAM,
            "start",
            "--data-dir",
            str(tmp_path),
            "--listen",
            "tcp://127.0.0.1:0",
            "--shards",
            "1",
            "--no-pin",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert node.stdout is not None and node.stdout.readline().startswith(
            "ringlog is ready on tcp://127.0.0.1:"
        )
        node.send_signal(signal.SIGINT)
        _, errors = node.communicate(timeout=WITHIN_S)
    finally:
        node.kill()
        node.wait()
    assert (node.returncode, errors) == (ExitCode.OK, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "\udcff"],
        ["topic", "describe", "\udcff"],
        ["topic", "alter", "orders", "--config", "\udcff=1"],
        ["consume", "\udcff"],
        ["consume", "orders", "--group", "\udcff"],
        ["group", "describe", "\udcff"],
        ["group", "reset", "\udcff", "--to", "earliest"],
        ["group", "delete", "\udcff", "--execute"],
        ["produce", "\udcff"],
    ],
)
def test_a_name_that_is_no_text_is_answered_in_one_line(ringlog_node, arguments):
    with (
        ringlog.Admin(ringlog_node.bootstrap) as admin,
        ringlog.Consumer(ringlog_node.bootstrap, "g") as some,
    ):
        admin.create_topic("orders", 1)
        some.commit({("orders", 0): 0})  # from here on the node knows of groups
    done = CliRunner().invoke(ringlog_cli, [*arguments, "--bootstrap", ringlog_node.bootstrap], b"line\n")
    assert done.exit_code == ExitCode.REFUSED
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("ringlog: ")
