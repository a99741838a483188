"""A node with two network processes: clients spread over both, and go on when one of them is killed."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import ringlog
from ringlog.errors import RinglogError
from ringlog.node import control
from ringlog.node.metrics import NodeView
from tests.support.amounts import cases, chance
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.raw_client import RawClient
from tests.support.trial import TOPIC, Trial

CLIENTS = 24
"""So many choose the same of two by chance once in eight million times."""


@pytest.fixture
def two_nets(tmp_path: Path) -> Trial:
    config = tmp_path / "node.toml"
    config.write_text("nets = 2\n")
    return Trial(tmp_path, options=("--config", str(config)))


def test_connections_that_the_system_numbers_take_neither_port_of_a_node(two_nets: Trial):
    """For a minute after its end each keeps its port from those who listen, and the node could not start."""
    lowest, highest = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = (two_nets.node.port, two_nets.node.port + 1)
    assert not [port for port in ports if lowest <= port <= highest]


def connections(trial: Trial) -> list[int]:
    """Of each network process."""
    rows = NodeView(trial.node.data_dir).process_rows()
    return [int(row["connections"]) for _, role, _, row in rows if role == "net"]


@pytest.mark.parametrize("through", ["ipc", "tcp"])
def test_clients_spread_over_the_network_processes(two_nets: Trial, through: str, monkeypatch):
    with two_nets as trial, ExitStack() as stack:
        port = trial.node.port
        bootstrap = trial.node.bootstrap
        if through == "tcp":  # as from another host, where no socket in a directory is offered
            monkeypatch.setattr("ringlog.client.link.host_id", lambda: "another")
            bootstrap += f",127.0.0.1:{port + 1}"
        for _ in range(CLIENTS):
            admin = stack.enter_context(ringlog.Admin(bootstrap=bootstrap))
            assert TOPIC in admin.list_topics()
        wait_for(
            "clients at both",
            lambda: min(found := connections(trial)) > 0 and sum(found) >= CLIENTS,
            stretched(5),
        )
        found = control.status(trial.node.data_dir, sample_s=0.1)
        assert [row.index for row in found.processes if row.role == "net"] == [0, 1]
        assert f"tcp://127.0.0.1:{port + 1}" in found.endpoints
        assert found.wrong == []


def test_what_one_network_process_took_the_other_serves(two_nets: Trial):
    with two_nets as trial:
        other = RawClient(f"tcp://127.0.0.1:{trial.node.port + 1}")
        with trial.client() as one, other:
            (partition, *_) = one.partition_ids(TOPIC)
            offset = one.produce(partition, [b"by one"]).base_offset
            records, _ = other.read(partition, offset)
            assert [record.value for record in records] == [b"by one"]
            other.create_topic("by-the-other", 1)
            wait_for(
                "its metadata", lambda: one.metadata(["by-the-other"]).topics[0].error == "", stretched(5)
            )


@pytest.mark.timeout(3600)
def test_kill_of_one_network_process_loses_nothing_and_the_others_clients_never_notice(two_nets: Trial):
    rng = chance("nets")
    with two_nets as trial:
        other = RawClient(f"tcp://127.0.0.1:{trial.node.port + 1}", timeout_s=stretched(5.0))
        with other, trial.load(producers=4, consumers=2) as load:
            load.wait_warm()
            (partition, *_) = other.partition_ids(TOPIC)
            for _ in cases(short=2, full=100):
                time.sleep(rng.uniform(0.0, 0.3))
                killed_at = time.monotonic()
                old_pid = trial.node.kill("net", 0)
                for _ in range(5):
                    # Not an error, retriable or not: it is not its network process that died.
                    other.start_offset(partition)
                load.wait_writable(killed_at, stretched(3.0))
                trial.node.wait_replaced("net", 0, old_pid)
            # Its own is killed with a request in it: one that is sent later waits for the next one, and is answered.
            trial.node.pause("net", 1)
            other.timeout_s = 1.0
            with pytest.raises(RinglogError) as caught:
                other.start_offset(partition)
            assert caught.value.retriable
            killed_at = time.monotonic()
            old_pid = trial.node.kill("net", 1)
            load.wait_writable(killed_at, stretched(3.0))
            trial.node.wait_replaced("net", 1, old_pid)
            other.timeout_s = stretched(5.0)
            other.start_offset(partition)
        trial.judge(records_min=100)
