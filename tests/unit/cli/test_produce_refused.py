"""`ringlog produce` says why it takes long when a node refuses records for now: once, and not at every hiccup."""

from __future__ import annotations

import time

import pytest

from cli.failures import ExitCode
from ringlog.errors import DiskFull
from ringlog.net.framing import Api
from tests.support.router import RouterNode, values

WHY = "orders-0: the disk has 3 MiB free. Free space or shorten retention; retry"


@pytest.fixture
def node():
    with RouterNode(partitions=1) as made:
        made.create("orders")
        yield made


def refuse_for(node: RouterNode, seconds: float) -> None:
    began_s: list[float] = []

    def before(header, body):
        if header.api_key == Api.PRODUCE:
            began_s.append(time.monotonic())
            if time.monotonic() - began_s[0] < seconds:
                raise DiskFull(WHY)

    node.before = before


@pytest.mark.parametrize("arguments", [[], ["--header", "by=ann"]], ids=["together", "one by one"])
def test_refusals_that_last_are_told_once_with_the_reason_and_that_it_goes_on(run, node, arguments):
    refuse_for(node, 3.0)
    result = run("produce", "orders", *arguments, "--bootstrap", node.bootstrap, input="one\ntwo\n")
    told, report = result.stderr.splitlines()
    assert told == (
        "ringlog: the node refuses the records for now: DISK_FULL, orders-0: the disk has 3 MiB free. "
        "Free space or shorten retention; retry. It is tried again for up to 120 s; Ctrl-C ends it."
    )
    assert result.exit_code == ExitCode.OK and report.startswith("2 records acknowledged")
    assert values(node, "orders") == [b"one", b"two"]


def test_a_benchmark_tells_what_holds_it_up_too(run, node):
    refuse_for(node, 3.0)
    result = run("bench", "produce", "--count", 10, "--topic", "orders", "--bootstrap", node.bootstrap)
    assert result.exit_code == ExitCode.OK, result.output
    assert result.stderr.count("ringlog: the node refuses the records for now: DISK_FULL, ") == 1


def test_a_hiccup_is_not_told(run, node):
    refuse_for(node, 0.2)
    result = run("produce", "orders", "--bootstrap", node.bootstrap, input="one\n")
    assert len(result.stderr.splitlines()) == 1 and "1 record acknowledged" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["--acks", "0"], ["--header", "by=ann"]])
def test_a_topic_of_the_node_itself_is_refused_in_one_line(run, node, arguments):
    node.create("__consumer_offsets")
    result = run(
        "produce", "__consumer_offsets", *arguments, "--bootstrap", node.bootstrap, input="one\ntwo\n"
    )
    assert result.exit_code == ExitCode.REFUSED and result.stdout == ""
    assert result.stderr == (
        "ringlog: topic '__consumer_offsets' is the node's own: nobody else writes to it. Use another name\n"
    )
    assert values(node, "__consumer_offsets") == []
