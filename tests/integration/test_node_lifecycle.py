"""A node of real processes: it starts, loses each kind of process once, is ready again, and leaves nothing behind."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator

import psutil
import pytest

import ringlog
from ringlog.node import control
from ringlog.node.identity import NodeInfo, read_info
from ringlog.node.metrics import NodeView
from ringlog.node.supervisor import RESTART_PAUSE_S
from ringlog.ring.shm import NAME_PREFIX, SHM_DIR

PATIENCE_S = 30.0


def eventually(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.01)


class RunningNode:
    """A node as a program starts it."""

    def __init__(self, data_dir: str, *arguments: str) -> None:
        self.data_dir = data_dir
        command = [sys.executable, "-m", "ringlog.node", "--data-dir", data_dir, "--shards", "1", "--no-pin"]
        command += ["--tail-bytes-per-shard", str(64 << 20), *arguments]
        if "--listen" not in arguments:
            command += ["--listen", "tcp://127.0.0.1:0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )

    def wait_ready(self) -> NodeInfo:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready: "), self.said()
        return self.info

    @property
    def info(self) -> NodeInfo:
        info = read_info(self.data_dir)
        assert info is not None
        return info

    @property
    def bootstrap(self) -> str:
        return self.info.endpoints[0].removeprefix("tcp://")

    def pids(self) -> list[int]:
        return [process.pid for process in self.info.processes]

    def said(self) -> str:
        _, stderr = self.process.communicate(timeout=PATIENCE_S)
        return stderr

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., RunningNode]]:
    nodes: list[RunningNode] = []

    def begin(*arguments: str) -> RunningNode:
        node = RunningNode(str(tmp_path / "data"), *arguments)
        nodes.append(node)
        return node

    yield begin
    for node in nodes:
        if node.process.poll() is None:
            node.stop()
        for stream in (node.process.stdout, node.process.stderr):
            assert stream is not None
            stream.close()


def mapped_memory(pid: int) -> set[str]:
    """Our segments of shared memory that a process has mapped."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            return {line.split()[5] for line in maps if f" {SHM_DIR}{NAME_PREFIX}" in line}
    except OSError:
        return set()  # it is gone, or not ours


def unused_memory() -> set[str]:
    """Our segments that no process has mapped."""
    there = {entry.path for entry in os.scandir(SHM_DIR) if entry.name.startswith(NAME_PREFIX[1:])}
    return there.difference(*(mapped_memory(pid) for pid in psutil.pids()))


def write_and_read(bootstrap: str, value: bytes) -> None:
    with ringlog.Producer(bootstrap=bootstrap) as producer:
        where = producer.produce("events", value).result(PATIENCE_S)
    with ringlog.Consumer(bootstrap=bootstrap) as consumer:
        consumer.assign([("events", where.partition, where.offset)])
        found: list[bytes | None] = []
        eventually(
            lambda: found.extend(r.value for r in consumer.poll(timeout_ms=200)) or found, "it is read back"
        )
    assert found[0] == value


def all_ready(node: RunningNode) -> bool:
    return all(process.state == "ready" for process in control.status(node.data_dir, 0.01).processes)


def test_every_process_may_open_as_many_files_as_the_system_allows(start):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
    try:
        node = start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    node.wait_ready()
    processes = {process.role: psutil.Process(process.pid) for process in node.info.processes}
    limits = {role: process.rlimit(psutil.RLIMIT_NOFILE) for role, process in processes.items()}
    assert limits == dict.fromkeys(processes, (hard, hard))


def test_each_kind_of_process_may_die_and_the_node_is_ready_again(start):
    node = start()
    node.wait_ready()
    write_and_read(node.bootstrap, b"before")
    for number, process in enumerate(node.info.processes):
        os.kill(process.pid, signal.SIGKILL)

        def replaced(number: int = number, pid: int = process.pid) -> bool:
            now = node.info.processes[number]
            return now.pid != pid and now.restarts == 1

        eventually(replaced, f"{process.role} is started anew")
        eventually(lambda: all_ready(node), f"{process.role} is ready again")
        write_and_read(node.bootstrap, f"after the death of {process.role}".encode())
    assert node.stop() == 0


def test_a_second_start_says_who_holds_the_directory(start):
    first = start()
    info = first.wait_ready()
    second = start()
    said = second.said()
    assert second.process.returncode == 3
    assert f"pid {info.pid} runs there, listening on {info.endpoints[0]}" in said
    write_and_read(first.bootstrap, b"the first is unharmed")


def test_a_stop_leaves_no_process_memory_or_socket(start):
    node = start()
    info = node.wait_ready()
    pids, made = node.pids(), mapped_memory(info.pid)
    assert made
    assert node.stop() == 0
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not any(map(os.path.exists, made))
    assert read_info(node.data_dir) is None
    assert not os.path.exists(os.path.join(node.data_dir, "net.sock"))


def test_a_port_that_is_taken_is_named_and_nothing_is_left(start):
    before = unused_memory()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        node = start("--listen", f"tcp://127.0.0.1:{port}")
        said = node.said()
    assert node.process.returncode == 3
    assert f"cannot listen on tcp://127.0.0.1:{port}" in said
    assert "Traceback" not in said
    eventually(lambda: unused_memory() <= before, "no memory is left", patience_s=5.0)
    assert control.find_node(node.data_dir) is None


def test_children_die_with_a_killed_supervisor_and_a_new_start_works(start):
    node = start()
    info = node.wait_ready()
    write_and_read(node.bootstrap, b"before")
    pids, made = node.pids(), mapped_memory(info.pid)
    node.process.kill()
    node.process.communicate(timeout=PATIENCE_S)
    eventually(lambda: not any(map(alive, pids)), "all children are gone", patience_s=1.0)
    again = start()
    again.wait_ready()
    write_and_read(again.bootstrap, b"after")
    assert not any(map(os.path.exists, made)), "the start has swept what the dead node left"


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_records_survive_a_stop_and_a_start(start):
    first = start()
    first.wait_ready()
    with ringlog.Producer(bootstrap=first.bootstrap) as producer:
        where = producer.produce("kept", b"value").result(PATIENCE_S)
    first.stop()
    second = start()
    second.wait_ready()
    with ringlog.Consumer(bootstrap=second.bootstrap) as consumer:
        consumer.assign([("kept", where.partition, 0)])
        found: list[bytes | None] = []
        eventually(
            lambda: found.extend(r.value for r in consumer.poll(timeout_ms=200)) or found, "it is there"
        )
    assert found == [b"value"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("shard = 2", "did you mean shards"),
        ("shards = ", "not TOML"),
        ('listen = "tcp://0.0.0.0:1"', "--insecure"),
    ],
)
def test_a_config_that_is_wrong_is_answered_in_one_line(start, tmp_path, text, word):
    path = tmp_path / "node.toml"
    path.write_text(text)
    command = [
        sys.executable,
        "-m",
        "ringlog.node",
        "--data-dir",
        str(tmp_path / "data"),
        "--config",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 3
    assert word in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_metrics_are_served_over_http(start):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    node = start("--metrics-listen", f"127.0.0.1:{port}")
    node.wait_ready()

    def scraped() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    eventually(lambda: 'ringlog_up{role="shard",index="0"} 1' in scraped(), "the shard is up")
    eventually(lambda: loops_of(scraped()) > 0, "loops are counted")


def loops_of(text: str) -> int:
    lines = [line for line in text.splitlines() if line.startswith('ringlog_loops_total{role="shard"')]
    return int(lines[0].split()[-1]) if lines else 0


def test_an_idle_node_sleeps(start):
    """Under 1 % of a core, told by wake-ups, which a busy machine does not change: a few a second for each process."""
    node = start()
    node.wait_ready()
    write_and_read(node.bootstrap, b"before it is quiet")

    def wakes_seldom() -> bool:
        before = loops(node.data_dir)
        time.sleep(1.0)
        return all(after - earlier <= 10 for earlier, after in zip(before, loops(node.data_dir), strict=True))

    eventually(wakes_seldom, "processes with nothing to do sleep")


def loops(data_dir: str) -> list[int]:
    """Passes of each process's loop."""
    return [int(row["loops"]) for _, _, _, row in NodeView(data_dir).process_rows()]


def test_a_metrics_port_that_is_taken_does_not_start_processes_without_end(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        began_s = time.monotonic()
        node = start("--metrics-listen", f"127.0.0.1:{taken.getsockname()[1]}")
        assert node.process.stderr is not None
        failures = 0
        for line in node.process.stderr:  # it ends with the node, which gives up when it was not ready yet
            failures += "cannot listen" in line
            if failures == 3:
                break
        took_s = time.monotonic() - began_s
        if node.process.poll() is None:
            node.process.send_signal(signal.SIGTERM)
        said = node.said()
    assert failures, said
    assert failures <= 1 + took_s / RESTART_PAUSE_S, "there is a pause between two attempts"
