"""IPv6: a node listens at an address of it, and clients, commands and other nodes reach it there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request

import pytest

import ringlog
from ringlog.errors import NodeUnavailable
from ringlog.net.host import host_id
from ringlog.net.peer_links import PeerLinks
from tests.support.node import wait_for
from tests.support.patience import stretched

PROGRAM = [sys.executable, "-m", "cli.main"]
WITHIN_S = 30.0


def free_port() -> int:
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node that listens at [::1] alone, on a port that the system chose; its first words."""
    metrics = f"[::1]:{free_port()}"
    command = [
        *PROGRAM,
        "start",
        "--data-dir",
        str(tmp_path_factory.mktemp("node")),
        "--shards",
        "1",
        "--no-pin",
    ]
    command += ["--listen", "tcp://[::1]:0", "--metrics-listen", metrics, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            told = json.loads(running.stdout.readline())
            yield {**told, "metrics": metrics, "bootstrap": told["endpoints"][0].removeprefix("tcp://")}
        finally:
            running.terminate()
            running.wait(WITHIN_S)


def test_a_node_says_where_it_listens(node):
    assert node["bootstrap"].startswith("[::1]:")


@pytest.mark.parametrize("near", [True, False], ids=["ipc", "tcp"])
def test_records_go_in_and_out(node, near, monkeypatch):
    if not near:  # as on another host: the client stays where it is
        monkeypatch.setattr("ringlog.client.link.host_id", lambda: f"not {host_id()}")
    topic = f"over-{'ipc' if near else 'tcp'}"
    with ringlog.Producer(node["bootstrap"]) as producer:
        assert producer.produce(topic, b"v", partition=0).result(stretched(10)).durability == "flushed"
    with ringlog.Consumer(f"tcp://{node['bootstrap']}", auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert [record.value for record in consumer.poll(stretched(10) * 1000)] == [b"v"]


def test_commands_reach_it(node):
    environment = {**os.environ, "RINGLOG_BOOTSTRAP": node["bootstrap"]}
    for arguments in (["produce", "lines"], ["consume", "lines"]):
        done = subprocess.run(
            [*PROGRAM, *arguments], input=b"line\n", capture_output=True, timeout=60, env=environment
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout == b"line\n"


def test_metrics_are_served_there(node):
    with urllib.request.urlopen(f"http://{node['metrics']}/metrics", timeout=stretched(10)) as answer:
        assert b"ringlog_" in answer.read()


def test_a_port_where_nobody_listens_is_told(node):
    with (
        ringlog.Admin(f"[::1]:{free_port()}", request_timeout_ms=500) as admin,
        pytest.raises(NodeUnavailable, match=r"no node answers at \[::1\]"),
    ):
        admin.list_topics()


def test_controllers_of_a_cluster_hear_each_other():
    endpoints = {number: f"tcp://[::1]:{free_port()}" for number in (1, 2)}
    first, second = PeerLinks(1, endpoints), PeerLinks(2, endpoints)

    def heard() -> bytes:
        first.send(2, "raft", b"hello")
        first.wait(0.0)
        second.wait(0.01)
        return b"".join(message.body for message in second.receive())

    try:
        assert b"hello" in wait_for("a message", heard, stretched(10))
    finally:
        first.close()
        second.close()
