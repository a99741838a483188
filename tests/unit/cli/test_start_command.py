"""`ringlog start`: what it says before the node runs."""

from __future__ import annotations

import pytest

from cli.failures import ExitCode
from tuning.doctor.facts import StorageFacts


@pytest.fixture
def start(run, monkeypatch, tmp_path):
    """Start a node that is none, on a disk of some kind."""

    def start_on(*arguments, **storage):
        facts = StorageFacts(directory=str(tmp_path), mount_point="/mnt", **storage)
        monkeypatch.setattr("tuning.doctor.read_facts.read_storage", lambda directory: facts)
        monkeypatch.setattr("ringlog.node.supervisor.run", lambda *_: 0)
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
