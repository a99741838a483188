"""`ringlog tune` without measuring: facts from a file, consent before the kernel is touched, and the way back."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.support.facts import facts
from tuning.doctor.facts import Core


@pytest.fixture
def saved(tmp_path):
    """Facts of a machine whose doctor would change one value of the kernel, a file of this test."""
    found = facts(cores=4, huge_pages="never")
    path = tmp_path / "facts.json"
    path.write_bytes(msgspec.json.encode(found))
    return path


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """The file that stands for transparent huge pages."""
    path = tmp_path / "enabled"
    path.write_text("always madvise [never]\n")
    monkeypatch.setattr("tuning.doctor.check_machine.HUGE_PAGES", str(path))
    return path


@pytest.fixture
def tune(run, saved, tmp_path):
    return lambda *arguments: run("tune", "--data-dir", tmp_path / "data", "--facts", saved, *arguments)


def test_without_apply_nothing_is_changed(tune, kernel, tmp_path):
    done = tune()
    assert done.exit_code == 0, done.output
    assert (
        "Nothing was changed" in done.stdout
        and "The doctor would change 1 value of the kernel" in done.stdout
    )
    assert not (tmp_path / "data").exists() and "[never]" in kernel.read_text()


def test_what_differs_from_the_default_is_marked_and_has_its_reason(tune, kernel):
    lines = tune("--policy", "laptop").stdout.splitlines()
    shards = next(line for line in lines if "shards" in line)
    assert shards.startswith("→ shards") and "half of 4 cores" in shards


def test_the_kernel_is_changed_only_with_consent_and_put_back(tune, run, kernel, tmp_path):
    refused = tune("--apply", "--system")
    assert refused.exit_code == 3 and "consent" in refused.stderr and "[never]" in kernel.read_text()
    assert f"echo madvise > {kernel}" in refused.stdout, "the dry run comes first"
    assert not (tmp_path / "data" / "node.toml").exists()
    done = tune("--apply", "--system", "--yes")
    assert (
        done.exit_code == 0 and kernel.read_text() == "madvise" and f"Set {kernel} to madvise." in done.stdout
    )
    undone = run("tune", "--data-dir", tmp_path / "data", "--undo")
    assert undone.exit_code == 0 and kernel.read_text() == "never", undone.output
    assert f"Set {kernel} to never again." in undone.stdout


def test_apply_alone_leaves_the_kernel_alone(tune, kernel, tmp_path):
    assert tune("--apply").exit_code == 0
    assert "[never]" in kernel.read_text() and (tmp_path / "data" / "node.toml").exists()


def test_compare_runs_the_nodes_own_settings_and_then_the_advice_over_them(
    tune, kernel, tmp_path, monkeypatch
):
    data = tmp_path / "data"
    data.mkdir()
    (data / "node.toml").write_text('nets = 1\nconnections_max = 77\n[topic_defaults]\n"flush" = "os"\n')
    told = []

    def run_node(directory, settings, loads, seconds):
        told.append(settings)
        return [2.0 if load.more_is_better == (len(told) % 2 == 0) else 1.0 for load in loads]

    monkeypatch.setattr("tuning.compare._run_node", run_node)
    done = tune("--compare", "--compare-seconds", "0.1", "--json", "--policy", "laptop")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    advised = {setting["name"]: setting["value"] for setting in found["advice"]["settings"]}
    for before, after in zip(told[::2], told[1::2], strict=True):
        assert before["connections_max"] == after["connections_max"] == 77
        assert before["shards"] == 0 and after["shards"] == advised["shards"]
        assert before["topic_defaults"] == {"flush": "os"}
        assert after["topic_defaults"] == {"flush": "os", "segment.bytes": advised["segment.bytes"]}
    assert [(run["before"], run["after"]) for run in found["compared"]] == [
        (1.0, 2.0),
        (1.0, 2.0),
        (2.0, 1.0),
    ]
    shown = tune("--compare", "--compare-seconds", "0.1").stdout
    assert shown.count("2.00 ×") == 3, "each is twice as good, whatever its unit"


def test_programs_get_one_object(tune, kernel):
    [line] = tune("--json").stdout.splitlines()
    told = json.loads(line)
    assert told["applied"] is None and told["compared"] == [] and told["advice"]["policy"] == "balanced"
    assert {"name", "value", "reason"} == set(told["advice"]["settings"][0])


@pytest.mark.parametrize(
    "wrong", [["--system"], ["--undo", "--apply"], ["--undo", "--compare"], ["--policy", "fast"]]
)
def test_options_that_contradict_each_other_are_wrong_usage(run, tmp_path, wrong):
    assert run("tune", "--data-dir", tmp_path, *wrong).exit_code == 2


def test_undo_without_a_tune_is_refused(run, tmp_path):
    done = run("tune", "--data-dir", tmp_path, "--undo")
    assert done.exit_code == 3 and "nothing was tuned" in done.stderr


def test_a_file_that_holds_no_facts_is_refused_by_its_name(run, tmp_path):
    path = tmp_path / "facts.json"
    path.write_text('{"probed_at": 5}')
    done = run("tune", "--data-dir", tmp_path, "--facts", path)
    assert done.exit_code == 3 and "facts.json" in done.stderr


def test_facts_of_machines_with_all_details_survive_their_file(tmp_path):
    found = facts(cores=2, cpu_quota=1.5, has_battery=True)
    cores = (Core(number=3, package=1, physical=2, numa_node=1, governor="powersave"),)
    found = msgspec.structs.replace(found, system=msgspec.structs.replace(found.system, cores=cores))
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(run, tmp_path):
    done = run("tune", "--data-dir", tmp_path / "data", "--report", tmp_path / "nowhere" / "page.html")
    assert done.exit_code == 3 and "there is no such directory" in done.stderr
    assert not (tmp_path / "data").exists()


def test_the_way_back_is_told_with_its_directory(tune, tmp_path):
    assert f"--undo --data-dir {tmp_path / 'data'}`" in tune("--apply").stdout
