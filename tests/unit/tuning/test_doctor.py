"""The doctor against faked machines: each fault is found, with its cost and the command that ends it."""

from __future__ import annotations

import json

import pytest

from tests.support.fake_machine import GIB, LIMITS
from tuning.doctor.diagnose import CHECKS, diagnose
from tuning.doctor.finding import Level, worst
from tuning.doctor.read_facts import read_facts, read_storage

NAMES = [
    "kernel", "io_uring", "memlock", "open files", "shared memory", "cores", "cpu governor", "idle cores",
    "memory monitor", "huge pages", "numa", "clock source", "interpreter", "directory", "file system",
    "mount options", "device", "write cache", "scheduler", "free space",
]  # fmt: skip


def found(machine, name):
    return next(finding for finding in diagnose(machine.facts()) if finding.check == name)


def others_are_well(machine, *names):
    return all(f.level is Level.OK for f in diagnose(machine.facts()) if f.check not in names)


def test_a_good_server_has_nothing_to_fix(machine):
    findings = diagnose(machine.facts())
    assert [finding.check for finding in findings] == NAMES and len(CHECKS) == len(NAMES)
    assert worst(findings) is Level.OK
    assert not any(finding.cost or finding.fix or finding.settings for finding in findings)


def test_the_facts_of_a_good_server_are_read(machine):
    facts = machine.facts()
    assert (
        facts.kernel_version == (6, 8) and facts.distribution == "debian" and facts.cpu_model == "A Processor"
    )
    assert [core.number for core in facts.cores] == [0, 1, 2, 3] and facts.numa_nodes == (0,)
    assert (facts.storage.device, facts.storage.model) == ("nvme0n1", "A Fast Disk")
    assert (
        facts.storage.fua and facts.storage.write_cache == "write back" and facts.storage.scheduler == "none"
    )
    assert (facts.memory_total_bytes, facts.open_files_hard) == (32 * GIB, 524288)
    assert facts.cpu_quota is None and not facts.has_battery


def test_a_machine_that_tells_nothing_is_read_all_the_same(machine, tmp_path):
    empty = type(machine).__new__(type(machine))
    empty.root, empty.refusal, empty.interpreter, empty.shm, empty.disk, empty.device, empty.writable = (
        tmp_path / "none",
        None,
        ("", False),
        (GIB, GIB),
        (GIB, GIB),
        "0:0",
        True,
    )
    facts = empty.facts()
    assert facts.kernel == "" and facts.cores == () and facts.storage.device == ""
    assert len(diagnose(facts)) == len(NAMES)


def test_this_machine_can_be_read_and_judged():
    assert len(diagnose(read_facts("/"))) == len(NAMES)


@pytest.mark.parametrize(
    ("distribution", "fix"), [("debian", "apt-get install linux-image-amd64"), ("plan9", "install Linux 6.1")]
)
def test_an_old_kernel_costs_latency(machine, distribution, fix):
    machine.write("proc/sys/kernel/osrelease", "5.15.0-91-generic")
    machine.write("etc/os-release", f"ID={distribution}\n")
    finding = found(machine, "kernel")
    assert finding.level is Level.SLOW and "latency" in finding.cost and fix in finding.fix
    assert others_are_well(machine, "kernel")


def test_io_uring_that_the_administrator_turned_off_is_turned_on_by_the_sysctl(machine):
    machine.write("proc/sys/kernel/io_uring_disabled", "2")
    machine.refusal = "kernel.io_uring_disabled is 2"
    finding = found(machine, "io_uring")
    assert finding.level is Level.SLOW and finding.fix == "sysctl -w kernel.io_uring_disabled=0"
    assert [setting.path for setting in finding.settings] == ["/proc/sys/kernel/io_uring_disabled"]
    assert "plain engine" in finding.cost


def test_io_uring_that_a_container_forbids_is_allowed_by_its_profile(machine):
    machine.write("proc/self/status", "Seccomp:\t2\nCpus_allowed_list:\t0-3\n")
    machine.refusal = "a seccomp filter forbids it"
    finding = found(machine, "io_uring")
    assert "seccomp" in finding.found and "--security-opt seccomp" in finding.fix and not finding.settings


def test_io_uring_that_is_refused_otherwise_says_why(machine):
    machine.refusal = "the kernel has none"
    assert found(machine, "io_uring").fix == "the kernel has none"


def test_locked_memory_counts_only_on_old_kernels(machine):
    machine.write("proc/self/limits", LIMITS.replace("8388608", "65536"))
    assert found(machine, "memlock").level is Level.OK
    machine.write("proc/sys/kernel/osrelease", "5.10.0")
    finding = found(machine, "memlock")
    assert finding.level is Level.SLOW and "ulimit -l unlimited" in finding.fix and finding.found == "64 KiB"
    machine.write("proc/self/limits", LIMITS.replace("8388608", "unlimited"))
    assert found(machine, "memlock").level is Level.OK


@pytest.mark.parametrize(
    ("limit", "level"), [(4096, Level.SLOW), (256, Level.BROKEN), ("unlimited", Level.OK)]
)
def test_few_open_files_bound_connections(machine, limit, level):
    machine.write("proc/self/limits", LIMITS.replace("524288", str(limit)))
    finding = found(machine, "open files")
    assert finding.level is level
    if level is not Level.OK:
        assert "prlimit --nofile=20000" in finding.fix and f"{limit // 2:,} connections" in finding.cost


@pytest.mark.parametrize(("free", "level"), [(1 * GIB, Level.SLOW), (64 << 20, Level.BROKEN)])
def test_small_shared_memory_means_small_buffers_or_no_start(machine, free, level):
    machine.shm = (free, free)
    finding = found(machine, "shared memory")
    assert finding.level is level and finding.fix == "mount -o remount,size=3G /dev/shm"
    machine.write(".dockerenv", "")
    assert found(machine, "shared memory").fix == "docker run --shm-size=3g …"


def test_no_shared_memory_is_told(machine):
    machine.shm = None
    assert found(machine, "shared memory").level is Level.BROKEN


def test_a_quota_below_the_cores_is_seen_in_the_group_or_above_it(machine):
    machine.write("sys/fs/cgroup/system.slice/cpu.max", "200000 100000")
    machine.write("sys/fs/cgroup/system.slice/ringlog.service/cpu.max", "max 100000")
    finding = found(machine, "cores")
    assert finding.level is Level.SLOW and finding.found == "4, and time for 2 of them"
    assert "ringlog start --shards 2" in finding.fix
    assert machine.facts().usable_cores == 2


def test_a_saving_governor_is_named_with_the_files_that_change_it(machine):
    machine.cpu(2, package=0, core=2, governor="powersave")
    finding = found(machine, "cpu governor")
    assert finding.level is Level.SLOW and finding.found == "performance, powersave"
    assert [setting.path.split("/")[5] for setting in finding.settings] == ["cpu2"]
    assert finding.fix == "cpupower frequency-set -g performance"


def test_a_machine_without_governors_is_well(machine):
    for number in range(4):
        machine.remove(f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor")
    assert found(machine, "cpu governor").level is Level.OK


def test_a_virtual_core_that_is_given_up_at_once_costs_latency(machine):
    assert found(machine, "idle cores").found == "the host decides"
    machine.write("sys/devices/system/cpu/cpuidle/current_governor", "haltpoll\n")
    machine.write("sys/module/haltpoll/parameters/guest_halt_poll_ns", "0\n")
    finding = found(machine, "idle cores")
    assert finding.level is Level.SLOW
    assert finding.fix == "echo 200000 > /sys/module/haltpoll/parameters/guest_halt_poll_ns"
    assert [setting.command for setting in finding.settings] == [finding.fix]
    machine.write("sys/module/haltpoll/parameters/guest_halt_poll_ns", "200000\n")
    assert found(machine, "idle cores").level is Level.OK


def test_where_another_governor_decides_the_time_of_haltpoll_says_nothing(machine):
    machine.write("sys/devices/system/cpu/cpuidle/current_governor", "menu\n")
    machine.write("sys/module/haltpoll/parameters/guest_halt_poll_ns", "0\n")
    assert found(machine, "idle cores").level is Level.OK


def test_a_monitor_of_memory_at_work_is_named_with_what_stops_it(machine):
    monitor = "sys/kernel/mm/damon/admin/kdamonds"
    machine.write(f"{monitor}/nr_kdamonds", "2\n")
    machine.write(f"{monitor}/0/state", "off\n")
    machine.write("sys/module/damon_reclaim/parameters/enabled", "N\n")
    assert found(machine, "memory monitor").level is Level.OK
    machine.write(f"{monitor}/1/state", "on\n")
    machine.write("sys/module/damon_reclaim/parameters/enabled", "Y\n")
    finding = found(machine, "memory monitor")
    assert finding.level is Level.SLOW and not finding.settings
    stops = (
        "off > /sys/kernel/mm/damon/admin/kdamonds/1/state",
        "N > /sys/module/damon_reclaim/parameters/enabled",
    )
    assert finding.fix == " && ".join(f"echo {stop}" for stop in stops)
    assert others_are_well(machine, "memory monitor")


def test_huge_pages_that_are_off_can_be_turned_on(machine):
    machine.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]")
    finding = found(machine, "huge pages")
    assert finding.fix == "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
    assert finding.settings[0].value == "madvise"


def test_several_numa_nodes_are_told_with_the_cores_of_the_disks_own(machine):
    machine.write("sys/devices/system/node/node0/cpulist", "0-1")
    machine.write("sys/devices/system/node/node1/cpulist", "2-3")
    machine.write(f"{machine.block}/device/numa_node", "1\n")
    finding = found(machine, "numa")
    assert finding.level is Level.SLOW and finding.found == "2 nodes"
    assert "numactl --cpunodebind=1 --membind=1 ringlog start (cores 2-3)" in finding.fix


def test_an_interpreter_that_was_built_without_optimisation_costs_speed(machine):
    assert found(machine, "interpreter").level is Level.OK
    machine.interpreter = ("CPython 3.11.7", True)
    finding = found(machine, "interpreter")
    assert finding.level is Level.SLOW and "CPython 3.11.7" in finding.found
    assert "PYTHON=/usr/bin/python3" in finding.fix


def test_a_slow_clock_is_changed_when_a_fast_one_is_there(machine):
    machine.clock("hpet", "hpet tsc acpi_pm")
    finding = found(machine, "clock source")
    assert finding.level is Level.SLOW and finding.fix.startswith("echo tsc > /sys/")
    machine.clock("acpi_pm", "acpi_pm")
    assert found(machine, "clock source").settings == ()
    assert "boot with" in found(machine, "clock source").fix


@pytest.mark.parametrize(
    ("kind", "level", "word"),
    [("xfs", Level.OK, ""), ("tmpfs", Level.BROKEN, "loss of power"), ("btrfs", Level.SLOW, "direct writes"),
     ("nfs4", Level.SLOW, "another host"), ("overlay", Level.SLOW, "container")],
)  # fmt: skip
def test_the_file_system_decides_what_a_flush_is_worth(machine, kind, level, word):
    machine.mount(kind)
    finding = found(machine, "file system")
    assert finding.level is level and word in finding.cost
    assert ("--data-dir" in finding.fix) == (level is not Level.OK)


@pytest.mark.parametrize(
    ("options", "level", "fix"),
    [("rw,nobarrier", Level.BROKEN, "mount -o remount,barrier /"), ("rw,sync", Level.SLOW, "mount -o remount,async /"),
     ("rw,data=journal", Level.SLOW, "fstab"), ("rw,discard", Level.OK, "")],
)  # fmt: skip
def test_mount_options_that_lie_or_wait_are_found(machine, options, level, fix):
    machine.mount("ext4", options)
    finding = found(machine, "mount options")
    assert finding.level is level and fix in finding.fix


def test_a_disk_that_turns_is_slow_and_wants_another_scheduler(machine):
    machine.write("sys/devices/pci/ata/block/sda/queue/rotational", "1")
    machine.write("sys/devices/pci/ata/block/sda/queue/scheduler", "[none] mq-deadline")
    machine.device = "8:0"
    machine.write("proc/self/mountinfo", "26 1 8:0 / / rw - ext4 /dev/sda rw\n")
    machine.link("sys/dev/block/8:0", "sys/devices/pci/ata/block/sda")
    assert (
        found(machine, "device").level is Level.SLOW and "turn of the disk" in found(machine, "device").cost
    )
    assert found(machine, "scheduler").fix == "echo mq-deadline > /sys/block/sda/queue/scheduler"


def test_an_encrypted_volume_is_judged_by_the_disk_under_it(machine):
    machine.device = "254:0"
    machine.write("proc/self/mountinfo", "26 1 254:0 / / rw - ext4 /dev/mapper/root rw\n")
    machine.write("sys/devices/virtual/block/dm-0/queue/scheduler", "none")
    machine.link("sys/dev/block/254:0", "sys/devices/virtual/block/dm-0")
    machine.link("sys/devices/virtual/block/dm-0/slaves/nvme0n1p2", f"{machine.block}/nvme0n1p2")
    assert machine.facts().storage.device == "nvme0n1"


def test_a_disk_in_memory_keeps_nothing(machine):
    machine.link("sys/dev/block/252:0", machine.block)
    (machine.root / machine.block).rename(machine.root / "sys/devices/pci/nvme/nvme0/zram0")
    machine.write("proc/self/mountinfo", "26 1 1:1 / / rw - ext4 /dev/zram0 rw\n")
    machine.link("sys/class/block/zram0", "sys/devices/pci/nvme/nvme0/zram0")
    assert found(machine, "device").level is Level.BROKEN


def test_a_cache_without_fua_costs_a_flush_and_is_never_changed_by_itself(machine):
    machine.write(f"{machine.block}/queue/fua", "0")
    finding = found(machine, "write cache")
    assert finding.level is Level.SLOW and "flush" in finding.cost and "only if" in finding.fix
    assert finding.settings == (), "whether the drive survives power loss is not ours to say"
    machine.write(f"{machine.block}/queue/write_cache", "write through")
    assert found(machine, "write cache").level is Level.OK


def test_a_scheduler_that_sorts_for_others_is_taken_out(machine):
    machine.write(f"{machine.block}/queue/scheduler", "none mq-deadline [bfq]")
    finding = found(machine, "scheduler")
    assert finding.fix == "echo none > /sys/block/nvme0n1/queue/scheduler" and len(finding.settings) == 1


@pytest.mark.parametrize(("free", "level"), [(5 * GIB, Level.SLOW), (100 << 20, Level.BROKEN)])
def test_a_disk_that_is_nearly_full_is_told_before_it_refuses(machine, free, level):
    machine.disk = (free, 1000 * GIB)
    finding = found(machine, "free space")
    assert finding.level is level and "retention" in finding.fix


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def doctor(run, machine, monkeypatch):
    """The command on the faked machine."""
    monkeypatch.setattr("tuning.doctor.read_facts.Sources", lambda: machine.sources)
    return lambda *arguments: run("doctor", "--data-dir", "/data", *arguments)


def test_the_command_ends_with_0_when_all_is_well(doctor):
    done = doctor()
    assert done.exit_code == 0 and "20 checks, and all is as it should be." in done.stdout


def test_the_command_shows_cost_and_fix_and_is_strict_only_when_asked(doctor, machine):
    machine.write(f"{machine.block}/queue/scheduler", "none mq-deadline [bfq]")
    done = doctor()
    assert done.exit_code == 0 and "20 checks: 1 thing costs speed." in done.stdout
    assert "slow   scheduler       bfq; wanted: none\n" in done.stdout
    assert "fix:   echo none > /sys/block/nvme0n1/queue/scheduler\n" in done.stdout
    assert doctor("--strict").exit_code == 1


def test_the_command_ends_with_5_when_something_must_be_fixed(doctor, machine):
    machine.mount("tmpfs")
    assert doctor().exit_code == 5


def test_the_command_prints_an_object_per_check_for_programs(doctor):
    findings = [json.loads(line) for line in doctor("--json").stdout.splitlines()]
    assert [finding["check"] for finding in findings] == NAMES
    assert {"level", "found", "wanted", "cost", "fix", "settings"} <= set(findings[0])


def test_wanted_is_shown_for_all_when_asked(doctor):
    assert doctor("--all").stdout.count("wanted:") == 20


def test_a_directory_that_this_user_may_not_write_is_found(machine):
    machine.writable = False
    finding = found(machine, "directory")
    assert finding.level is Level.BROKEN and finding.found.endswith("may not be written by this user")
    assert finding.cost == "a node cannot start there" and "--data-dir DIR" in finding.fix
    assert others_are_well(machine, "directory")


def test_whether_a_directory_may_be_written_is_asked_of_the_nearest_one_that_is_there(tmp_path):
    assert read_storage(str(tmp_path / "a" / "b")).writable
    (tmp_path / "file").touch()
    assert not read_storage(str(tmp_path / "file" / "b")).writable
