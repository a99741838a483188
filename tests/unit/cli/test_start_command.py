"""`ringlog start`: what it says before the node runs."""

from __future__ import annotations

import os
import sys

import pytest

from cli.failures import ExitCode
from ringlog.config import NodeConfig
from ringlog.node.identity import DataDirLock, holder_pid
from tuning.doctor.facts import StorageFacts


class NoNode:
    """In place of a node."""

    def __init__(self, config: NodeConfig, lock: DataDirLock) -> None:
        self._lock = lock

    def run(self, *_: object) -> int:
        self._lock.leave()
        return 0


@pytest.fixture
def start(run, monkeypatch, tmp_path):
    """Start a node that is none, on a disk of some kind."""

    def start_on(*arguments, **storage):
        facts = StorageFacts(directory=str(tmp_path), mount_point="/mnt", **storage)
        monkeypatch.setattr("tuning.doctor.read_facts.read_storage", lambda directory: facts)
        monkeypatch.setattr("ringlog.node.supervisor.Supervisor", NoNode)
        return run("start", "--data-dir", tmp_path / "data", *arguments)

    return start_on


@pytest.mark.parametrize(
    "storage",
    [{"file_system": "tmpfs"}, {"file_system": "ramfs"}, {"file_system": "ext4", "device": "zram0"}],
    ids=lambda storage: " on ".join(storage.values()),
)
def test_who_keeps_data_in_memory_is_warned_that_flushed_means_little(start, tmp_path, storage):
    result = start(**storage)
    kind = storage.get("device", storage["file_system"])
    assert result.exit_code == ExitCode.OK
    assert result.stderr == (
        f"ringlog: WARNING: {tmp_path}/data is in memory ({kind} at /mnt): what is acknowledged as flushed survives "
        "no reboot and no loss of power there. Name a directory on a disk: --data-dir DIR\n"
    )


def test_who_keeps_data_on_a_disk_is_not(start):
    assert start(file_system="ext4", device="vda").output == ""


def test_a_node_can_be_stopped_before_it_is_loaded_and_one_that_cannot_be_leaves_nothing(
    run, monkeypatch, tmp_path
):
    data_dir, held = tmp_path / "new" / "data", []

    class Loading:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "ringlog.node.supervisor":
                held.append(holder_pid(str(data_dir)))
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "ringlog.node.supervisor", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Loading, *sys.meta_path])
    run("start", "--data-dir", data_dir)
    assert held == [os.getpid()]
    assert os.listdir(tmp_path) == []
