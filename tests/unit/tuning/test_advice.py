"""Advice: what each setting follows from, and that a node takes every one of them."""

from __future__ import annotations

import msgspec
import pytest

from ringlog.config import NodeConfig
from ringlog.controller.topic_config import SETTINGS, node_defaults
from tests.support.facts import GIB, KIB, MIB, facts, without
from tuning.advice.advise import advise, system_changes
from tuning.advice.setting import Policy, default_of
from tuning.doctor.facts import Core
from tuning.probe.measured import DSYNC, PLAIN, Measured


def advised(found, policy=Policy.BALANCED):
    return advise(found, policy).values


NUMBERS_OF_CORES = (1, 2, 3, 4, 8, 16, 64, 200)


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("cores", NUMBERS_OF_CORES)
@pytest.mark.parametrize("disk_bytes_per_s", [5e6, 1e9, 2e10])
def test_every_setting_that_is_advised_is_one_that_a_node_takes(policy, cores, disk_bytes_per_s):
    advice = advise(facts(cores=cores, disk_bytes_per_s=disk_bytes_per_s), policy)
    config = NodeConfig(data_dir="/x", **advice.over({}))
    assert node_defaults(config.topic_defaults) == {"segment.bytes": str(advice.values["segment.bytes"])}
    assert config.shards + config.nets <= max(cores, 2)
    assert all(setting.reason and setting.default is not None for setting in advice.settings)


def test_the_default_of_segments_is_the_one_that_topics_have():
    assert str(default_of("segment.bytes")) == SETTINGS["segment.bytes"].default


@pytest.mark.parametrize("policy", list(Policy))
def test_a_machine_of_which_nothing_could_be_measured_is_advised_all_the_same(policy):
    bare = msgspec.structs.replace(facts(), measured=Measured(engine="plain", budget_s=1, took_s=1))
    advice = advise(bare, policy)
    NodeConfig(data_dir="/x", **advice.over({}))
    assert advice.notes == ()
    assert "doctor" in next(setting.reason for setting in advice.settings if setting.name == "disk_engine")


def test_two_cores_have_one_shard_that_is_not_pinned_and_nobody_spins():
    found = advised(facts(cores=2), Policy.LATENCY)
    assert (found["shards"], found["nets"], found["pin"], found["spin_us"]) == (1, 1, False, 0)


def test_a_slow_disk_needs_few_shards_however_many_cores_there_are():
    assert advised(facts(cores=64, disk_bytes_per_s=100e6))["shards"] == 1
    assert advised(facts(cores=64, disk_bytes_per_s=5e9))["shards"] == 10


def test_a_quota_counts_as_so_many_cores():
    assert advised(facts(cores=64, cpu_quota=2.0, disk_bytes_per_s=5e9))["shards"] == 1


def test_network_processes_follow_the_disk_on_large_machines_only():
    fast = {"disk_bytes_per_s": 4e9}
    assert advised(facts(cores=16, **fast))["nets"] == 4
    assert advised(facts(cores=4, **fast))["nets"] == 1
    assert advised(facts(cores=16, **fast), Policy.LAPTOP)["nets"] == 1
    assert advised(facts(cores=16, disk_bytes_per_s=0.5e9))["nets"] == 1


def test_pinned_shards_stay_on_the_disks_numa_node_and_share_no_physical_core():
    cores = tuple(
        Core(number=n, package=n % 2, physical=n % 8 // 2, numa_node=n % 2) for n in range(16)
    )  # 8 physical cores with a sibling each
    machine = facts(disk_bytes_per_s=0.5e9, cores=16)
    machine = msgspec.structs.replace(
        machine,
        system=msgspec.structs.replace(
            machine.system, cores=cores, storage=msgspec.structs.replace(machine.system.storage, numa_node=1)
        ),
    )
    found = advised(machine)
    assert (found["shards"], found["nets"]) == (1, 1)
    assert (found["shard_cores"], found["net_cores"]) == ("3", "5"), "of node 1, and not its first core"
    assert "shard_cores" not in advised(facts(cores=16)), "where it does not matter, the system may choose"


def test_latency_spins_as_long_as_a_write_takes_and_balanced_as_long_as_a_wake_up_costs():
    machine = facts(cores=8, disk_bytes_per_s=0.4e9)
    write_us = next(p.p50_us for p in machine.measured.writes if p.size_bytes == 4 * KIB and p.depth == 1)
    spin = advised(machine, Policy.LATENCY)["spin_us"]
    assert write_us <= spin <= write_us * 1.2 + 10
    assert advised(machine, Policy.BALANCED)["spin_us"] == 27
    assert advised(machine, Policy.THROUGHPUT)["spin_us"] == advised(machine, Policy.LAPTOP)["spin_us"] == 0


def test_a_wake_up_that_costs_nothing_is_not_avoided():
    assert advised(without(facts(), hop_sleeping_us=5.0))["spin_us"] == 0


def test_the_engine_is_changed_only_where_the_plain_one_is_clearly_faster():
    machine = facts()
    assert advised(machine)["disk_engine"] == "auto"
    best = {
        (p.size_bytes, p.depth, p.space): p.bytes_per_s for p in machine.measured.writes if p.method == DSYNC
    }
    faster = tuple(
        msgspec.structs.replace(p, bytes_per_s=best[p.size_bytes, p.depth, p.space] * 1.3)
        if p.method == PLAIN
        else p
        for p in machine.measured.writes
    )
    assert advised(without(machine, writes=faster))["disk_engine"] == "plain"


def test_depth_is_bounded_where_more_writes_at_once_gain_nothing():
    flat = tuple(
        msgspec.structs.replace(p, bytes_per_s=1e9 if p.depth >= 16 else p.bytes_per_s)
        for p in facts().measured.writes
    )
    machine = without(facts(cores=8, disk_bytes_per_s=1e9), writes=flat)
    shards = advised(machine)["shards"]
    assert advised(machine)["disk_depth"] == max(4, -(-16 // shards))
    rising = tuple(
        msgspec.structs.replace(p, bytes_per_s=1e6 * p.depth * p.size_bytes / KIB)
        for p in facts().measured.writes
    )
    assert advised(without(facts(), writes=rising))["disk_depth"] == 0


def test_groups_are_the_smallest_that_reach_most_of_the_rate():
    machine = facts()
    assert advised(machine)["group_bytes"] == MIB
    assert advised(machine, Policy.LATENCY)["group_bytes"] == 256 * KIB
    assert advised(machine, Policy.THROUGHPUT)["group_bytes"] == 2 * MIB


def test_buffers_fit_into_memory_and_shared_memory():
    assert advised(facts())["tail_bytes_per_shard"] == 256 * MIB
    assert advised(facts(), Policy.THROUGHPUT)["tail_bytes_per_shard"] == GIB
    assert advised(facts(), Policy.LAPTOP)["tail_bytes_per_shard"] == 64 * MIB
    assert advised(facts(cores=2, memory_available_bytes=GIB))["tail_bytes_per_shard"] == 128 * MIB
    assert advised(facts(cores=2, shm_free_bytes=256 * MIB))["tail_bytes_per_shard"] < 100 * MIB
    assert advised(facts(cores=2, shm_free_bytes=0))["tail_bytes_per_shard"] == 16 * MIB


def test_segments_and_space_ahead_follow_the_room_on_the_disk():
    small = facts(storage={"free_bytes": 20 * GIB})
    assert advised(facts())["segment.bytes"] == GIB
    assert advised(small)["segment.bytes"] == 64 * MIB
    assert advised(facts(), Policy.LAPTOP)["segment.bytes"] == 128 * MIB
    assert advised(facts())["preallocate_bytes_max"] == 64 * MIB
    assert advised(facts(disk_bytes_per_s=100e6))["preallocate_bytes_max"] == 16 * MIB
    assert advised(small)["preallocate_bytes_max"] == 16 * MIB
    assert advised(facts(), Policy.LAPTOP)["preallocate_bytes_max"] == 8 * MIB


def test_notes_say_what_was_measured_and_needs_no_setting():
    notes = advise(facts()).notes
    assert notes[0].startswith("Flush method: 4 KiB durable by O_DIRECT with RWF_DSYNC 0.1")
    assert "the best here" in notes[0]
    assert "written before" in notes[1] and "ZeroMQ over tcp: 90 µs there and back" in notes[2]
    slow = tuple(
        msgspec.structs.replace(p, p50_us=p.p50_us * 3) if p.method == DSYNC else p
        for p in facts().measured.writes
    )
    assert "2.3 × as long as the best here" in advise(without(facts(), writes=slow)).notes[0]


def test_the_system_is_changed_where_the_doctor_says_so_and_a_laptop_lets_its_cores_rest():
    cores = tuple(Core(number=n, physical=n, governor="powersave") for n in range(2))
    machine = facts(cores=2, huge_pages="never")
    system = msgspec.structs.replace(machine.system, cores=cores, halt_poll_ns=0)
    checks = [change.check for change in system_changes(system, Policy.BALANCED)]
    assert checks == ["cpu governor", "cpu governor", "idle cores", "huge pages"]
    assert [change.check for change in system_changes(system, Policy.LAPTOP)] == ["huge pages"]
