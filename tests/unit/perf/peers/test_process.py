"""A peer's server is awaited, accounted and stopped; one that cannot be had is one clear line."""

from __future__ import annotations

import os
import sys

import psutil
import pytest

from perf.peers import fetch, rabbitmq
from perf.peers.fetch import PeerUnavailable
from perf.peers.process import cost_of, free_port, server
from perf.peers.settings import KAFKA_VERSION

LISTEN = """
import socket, sys, time
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
until = time.process_time() + 0.05
while time.process_time() < until: pass
time.sleep(60)
"""


def test_a_server_is_up_inside_the_block_and_gone_after_it(tmp_path):
    port = free_port()
    with server("listener", [sys.executable, "-c", LISTEN, str(port)], str(tmp_path), port) as pid:
        assert psutil.pid_exists(pid)
        assert cost_of(pid).cpu_s > 0
        assert cost_of(pid).rss_bytes > 1_000_000
    assert not psutil.pid_exists(pid)


def test_a_server_that_ends_at_once_is_unavailable_with_its_last_words(tmp_path):
    command = [sys.executable, "-c", "print('no such license'); raise SystemExit(3)"]
    with (
        pytest.raises(PeerUnavailable, match="broken ended at its start: no such license"),
        server("broken", command, str(tmp_path), free_port()),
    ):
        pytest.fail("the block must not run")


def test_a_missing_program_is_named_with_what_installs_it():
    with pytest.raises(PeerUnavailable, match="no-such-program is missing; it needs this"):
        fetch.require("no-such-program", "this")


def test_nothing_is_fetched_without_leave(tmp_path, monkeypatch):
    monkeypatch.setenv("RINGLOG_PEERS_DIR", str(tmp_path))
    monkeypatch.setattr(fetch.shutil, "which", lambda program: None if "redis" in program else "/bin/true")
    with pytest.raises(PeerUnavailable, match="`make peers` fetches it"):
        fetch.kafka_jars(fetch=False)
    with pytest.raises(PeerUnavailable, match="`make peers` fetches it"):
        fetch.redis_binary(fetch=False)
    monkeypatch.setattr(fetch.glob, "glob", lambda pattern: [])
    with pytest.raises(PeerUnavailable, match="`make peers` fetches it"):
        fetch.rabbitmq_root(fetch=False)
    assert os.listdir(tmp_path) == []


def test_a_fetch_that_fails_leaves_nothing_and_says_why_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("RINGLOG_PEERS_DIR", str(tmp_path))
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text("#!/bin/sh\necho first line >&2; echo the registry does not answer >&2; exit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{maven.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(fetch, "require", lambda program, what: program)
    with pytest.raises(PeerUnavailable) as raised:
        fetch.kafka_jars()
    assert (
        str(raised.value) == f"kafka-{KAFKA_VERSION} could not be fetched: mvn: the registry does not answer"
    )
    assert os.listdir(tmp_path) == ["bin"]


def test_rabbitmq_that_was_unpacked_by_halves_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setenv("RINGLOG_PEERS_DIR", str(tmp_path))
    monkeypatch.setattr(rabbitmq, "rabbitmq_root", lambda fetch: str(tmp_path))
    with (
        pytest.raises(PeerUnavailable, match="remove the directory"),
        rabbitmq.rabbitmq(str(tmp_path / "data")),
    ):
        pytest.fail("the block must not run")
