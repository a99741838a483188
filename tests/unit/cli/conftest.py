"""What the tests of the command share: a partition on a real file system, and the command itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.commands import ringlog
from ringlog.disk.plain import PlainDisk
from tests.support.fake_client import FakeNode
from tests.support.sample_logs import SampleLog


class Partition:
    """A closed partition of one small segment in a data directory of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "orders-0"
        self.segment = self.path / "00000000000000000000.log"

    def flip(self, path: Path, position: int) -> None:
        content = bytearray(path.read_bytes())
        content[position] ^= 0x10
        path.write_bytes(content)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    disk = PlainDisk()
    log = SampleLog(disk, root=str(tmp_path))
    log.append_samples(12, value_bytes=2000)
    log.close()
    disk.shutdown()
    return Partition(tmp_path)


@pytest.fixture
def run():
    """Run the command in this process; the result has exit_code, stdout and stderr."""
    return lambda *arguments, **how: CliRunner().invoke(ringlog, [str(a) for a in arguments], **how)


@pytest.fixture
def command():
    """The command as a shell would start it."""

    def start(*arguments, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", "cli.main", *map(str, arguments)]
        return subprocess.Popen(line, stdout=stdout, stderr=subprocess.PIPE)

    return start


@pytest.fixture
def node(monkeypatch) -> FakeNode:
    """A node in memory, which all clients of the command meet."""
    fake = FakeNode()
    monkeypatch.delenv("RINGLOG_BOOTSTRAP", raising=False)
    for module in (
        "cli.topic_calls",
        "cli.consume_run",
        "cli.produce_run",
        "cli.bench.run",
        "cli.bench.worker",
    ):
        for name, opener in (("admin", fake.admin), ("producer", fake.producer), ("consumer", fake.consumer)):
            monkeypatch.setattr(f"{module}.open_{name}", opener, raising=False)
    return fake
