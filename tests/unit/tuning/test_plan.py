"""Plans of clusters: the known sums, what bounds a cluster, and what a broker's loss does."""

from __future__ import annotations

import json

import msgspec
import pytest

from ringlog.errors import InvalidRequest
from tuning.capacity.flows import flows_of
from tuning.capacity.lag import lag_of
from tuning.capacity.load import Broker, Load
from tuning.capacity.plan import make_plan

KNOWN = Load(records_per_s=1e6, record_bytes=1000, replication=3, groups=5, retention_s=7 * 86400)
BROKER = Broker(disks=12, disk_bytes=4e12)


def resource(plan, name):
    return next(found for found in plan.resources if found.name == name)


def test_the_known_sums_come_out():
    flows = flows_of(KNOWN)
    assert flows.in_bytes_per_s == 1e9
    assert flows.written_bytes_per_s == 3e9
    assert flows.out_bytes_per_s == 5e9
    assert flows.bytes_per_day == 86.4e12
    assert flows.bytes_per_day_replicated == pytest.approx(259.2e12)
    assert flows.kept_bytes == pytest.approx(1.8144e15)


def test_the_known_load_needs_38_brokers_of_48_tb_for_storage_alone():
    plan = make_plan(KNOWN, BROKER, headroom=0)
    assert resource(plan, "storage").brokers_bare == 38
    assert plan.bottleneck == "storage"
    assert plan.brokers == 39, "one of them may be lost"


def test_a_group_at_four_fifths_for_5_minutes_is_60_million_behind_and_needs_300_s():
    lag = lag_of(
        in_per_s=1e6,
        handled_per_s=0.8e6,
        slow_s=300,
        recover_per_s=1.2e6,
        record_bytes=1000,
        retention_s=7 * 86400,
    )
    assert (lag.behind_records, lag.catch_up_s, lag.behind_bytes) == (60e6, 300.0, 60e9)
    assert lag.kept


def test_a_group_that_is_no_faster_than_what_comes_in_never_catches_up():
    lag = lag_of(in_per_s=1e6, handled_per_s=0, slow_s=60, recover_per_s=1e6, record_bytes=1, retention_s=1)
    assert lag.catch_up_s is None and not lag.kept


def test_a_group_that_keeps_up_is_not_behind():
    lag = lag_of(in_per_s=10, handled_per_s=11, slow_s=60, recover_per_s=10, record_bytes=1, retention_s=1)
    assert (lag.behind_records, lag.catch_up_s) == (0, 0)


def test_headroom_makes_a_cluster_larger_by_its_share():
    bare, roomy = (make_plan(KNOWN, BROKER, headroom=share) for share in (0.0, 0.5))
    assert resource(roomy, "storage").brokers == 76
    assert resource(bare, "storage").brokers == 38
    assert roomy.brokers == 76


@pytest.mark.parametrize(
    ("load", "broker", "bottleneck"),
    [
        ({"retention_s": 60}, {"nic_bytes_per_s": 1e8}, "network out"),
        ({"retention_s": 60, "groups": 0}, {"nic_bytes_per_s": 1e8}, "network in"),
        ({"retention_s": 60, "groups": 0}, {"disks": 1, "disk_write_bytes_per_s": 1e7}, "disk writes"),
        (
            {"retention_s": 60, "catching_up_groups": 5},
            {"disks": 1, "disk_read_bytes_per_s": 1e7},
            "disk reads",
        ),
        ({"retention_s": 60}, {"cores": 1}, "cpu"),
        ({"retention_s": 60, "records_per_s": 1}, {}, "replication"),
    ],
)
def test_the_bottleneck_is_what_asks_for_the_most_brokers(load, broker, bottleneck):
    plan = make_plan(
        msgspec.structs.replace(KNOWN, **load), msgspec.structs.replace(BROKER, **broker), headroom=0
    )
    assert plan.bottleneck == bottleneck


def test_cpu_is_looked_at_only_when_cores_are_given():
    assert "cpu" not in [found.name for found in make_plan(KNOWN, BROKER).resources]
    cpu = resource(make_plan(KNOWN, Broker(cores=16, cpu_s_per_gb=1.6)), "cpu")
    assert (cpu.demand, cpu.brokers_bare) == (pytest.approx(16.0), 1)


def test_the_loss_of_a_broker_moves_its_share_to_the_others():
    plan = make_plan(KNOWN, BROKER)
    loss = plan.loss
    assert plan.brokers == 54 and loss.load_share == 1 / 54
    assert loss.use_after["storage"] == pytest.approx(1.8144e15 / (48e12 * 53))
    assert loss.survives and loss.carries_on
    assert loss.bytes_to_copy == pytest.approx(1.8144e15 / 54)


def test_lost_replicas_are_copied_by_as_many_brokers_as_there_are_replicas_each_with_what_its_load_leaves():
    """By hand: 54 partitions, 3 replicas of 11.2 TB on each of 54 brokers. The loss of one has 3 of the others fetch
    a replica each. Sending is the slowest of what they do: 3.125 GB/s of a card less 7 GB/s / 53 of load are 2.993,
    of which 30 % stay free: 2.095 GB/s, and 11.2 TB take 5,346 s."""
    loss = make_plan(KNOWN, BROKER).loss
    assert (loss.bytes_to_copy, loss.copied_to) == (pytest.approx(33.6e12), 3)
    assert loss.copy_s == pytest.approx(5346, abs=1)


def test_many_lost_replicas_are_copied_by_all_that_are_left():
    """By hand: 1 GB/s for 100 s on 4 brokers of 1 TB, 1,000 partitions, 2 replicas: 200 GB, 500 replicas of 0.1 GB on
    each broker. Each of 3 others takes 167 of them, 16.7 GB. A disk writes 2 GB/s less 2 GB/s / 3: 1.333 GB/s, half of
    which stays free: 16.7 GB take 25.05 s."""
    load = Load(
        records_per_s=1e6,
        record_bytes=1000,
        replication=2,
        groups=0,
        retention_s=100,
        partition_bytes_per_s=1e6,
    )
    broker = Broker(
        disks=1, disk_bytes=1e11, disk_write_bytes_per_s=2e9, disk_read_bytes_per_s=9e9, nic_bytes_per_s=9e9
    )
    plan = make_plan(load, broker, headroom=0.5)
    assert (plan.brokers, plan.partitions.count) == (4, 1000)
    assert (plan.loss.bytes_to_copy, plan.loss.copied_to) == (50e9, 3)
    assert plan.loss.copy_s == pytest.approx(25.05)


def test_copies_take_cpu_twice_to_send_and_to_receive_them():
    """By hand, as above with 4 cores that take 3 s for a GB: the load is 3 GB/s, 9 cores of 3 brokers; 1 core of 4 is
    left of each, and 40 % of that stay free: 0.6 / (2 × 3) GB/s are 0.1, and 16.7 GB take 167 s."""
    load = Load(
        records_per_s=1e6,
        record_bytes=1000,
        replication=2,
        groups=0,
        retention_s=100,
        partition_bytes_per_s=1e6,
    )
    broker = Broker(
        disks=1, disk_bytes=1e11, disk_write_bytes_per_s=9e9, disk_read_bytes_per_s=9e9, nic_bytes_per_s=9e9,
        cores=4, cpu_s_per_gb=3,
    )  # fmt: skip
    plan = make_plan(load, broker, headroom=0.4)
    assert plan.brokers == 4
    assert plan.loss.copy_s == pytest.approx(167)


def test_without_replicas_a_broker_takes_its_records_with_it():
    plan = make_plan(msgspec.structs.replace(KNOWN, replication=1), BROKER)
    assert not plan.loss.survives and not plan.loss.carries_on and plan.loss.bytes_to_copy == 0


def test_as_many_brokers_as_replicas_cannot_make_a_lost_replica_anew():
    small = make_plan(Load(records_per_s=10, record_bytes=10, replication=3), BROKER)
    assert small.brokers == 3
    assert small.loss.survives and small.loss.carries_on and small.loss.copy_s is None


def test_a_single_broker_that_is_lost_leaves_nothing():
    plan = make_plan(Load(records_per_s=1, record_bytes=1, replication=1, retention_s=1), BROKER, headroom=0)
    assert plan.brokers == 2, "one more than is enough, so that the load is carried"
    assert plan.loss.use_after


def test_partitions_are_enough_for_consumers_bytes_and_brokers():
    by_consumers = make_plan(msgspec.structs.replace(KNOWN, consumer_records_per_s=1000), BROKER).partitions
    assert by_consumers.count >= 1000 and by_consumers.count % 54 == 0 and "consumer" in by_consumers.reason
    by_bytes = make_plan(msgspec.structs.replace(KNOWN, partition_bytes_per_s=1e6), BROKER).partitions
    assert by_bytes.count >= 1000 and "MB/s" in by_bytes.reason
    assert make_plan(KNOWN, BROKER).partitions.count == 54
    assert by_bytes.replicas_per_broker == by_bytes.count * 3 // 54


@pytest.mark.parametrize(
    "wrong", [{"records_per_s": 0}, {"record_bytes": -1}, {"replication": 0}, {"catching_up_groups": 9}]
)
def test_a_load_that_cannot_be_is_refused(wrong):
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        Load(**{"records_per_s": 1, "record_bytes": 1, **wrong})


@pytest.mark.parametrize("wrong", [{"disks": 0}, {"nic_bytes_per_s": 0}, {"cpu_s_per_gb": 0}])
def test_a_broker_that_cannot_be_is_refused(wrong):
    with pytest.raises(InvalidRequest):
        Broker(**wrong)


def test_headroom_is_a_share():
    with pytest.raises(InvalidRequest, match="headroom"):
        make_plan(KNOWN, BROKER, headroom=1.0)


# -- the command ---------------------------------------------------------------------------------------------------

KNOWN_OPTIONS = ["--records-per-s", "1M", "--record-size", "1KB", "--groups", "5", "--retention", "7d"]


def test_the_command_prints_the_known_sums(run):
    done = run("plan", *KNOWN_OPTIONS, "--slow-group", "0.8M", "--slow-for", "5m", "--recover-at", "1.2M")
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    for sum_ in (
        "in 1 GB/s", "written 3 GB/s", "out 5 GB/s", "per day 86.4 TB, 259 TB", "kept 1.81 PB after 7 d",
        "→ storage 1.81 PB 48 TB 38 54", "falls 60 M records behind (60 GB) and catches up in 5 min",
        "A broker's loss moves 1.9% of the leaders",
    ):  # fmt: skip
        assert sum_ in text, sum_


def test_the_command_prints_one_object_for_programs(run):
    [line] = run("plan", *KNOWN_OPTIONS, "--json").stdout.splitlines()
    found = json.loads(line)
    assert found["plan"]["brokers"] == 54 and found["lag"] is None
    assert found["plan"]["flows"]["kept_bytes"] == pytest.approx(1.8144e15)


@pytest.mark.parametrize("wrong", [["--record-size", "big"], ["--retention", "7y"], ["--headroom", "1"]])
def test_an_option_that_is_no_amount_is_wrong_usage(run, wrong):
    assert run("plan", *KNOWN_OPTIONS, *wrong).exit_code == 2


def test_a_single_replica_is_warned_of(run):
    done = run("plan", *KNOWN_OPTIONS, "--replication", "1")
    assert "takes 6% of the records with it" in done.stdout and "--replication 2" in done.stdout


def test_without_headroom_the_loss_may_be_too_much_or_not_repairable(run):
    done = run("plan", "--records-per-s", "1", "--record-size", "1", "--replication", "3")
    assert "stay missing until it is replaced" in done.stdout
