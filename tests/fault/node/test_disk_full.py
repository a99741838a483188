"""A full disk: produce is refused with a typed error, reads and commits go on, and the node recovers by itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import ringlog
from ringlog.errors import DiskFull, RinglogError
from ringlog.limits import MIB
from ringlog.node import control
from ringlog.node.reserve import RESERVE_NAME
from tests.support.amounts import cases
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.raw_client import RawClient
from tests.support.small_disk import Ballast, on_a_small_disk, run_in_namespace, small_disk
from tests.support.trial import TOPIC, Trial

RECOVERED_WITHIN_S = 10.0
FILLER = b"\xee" * 200_000


@pytest.mark.timeout(3600)
@on_a_small_disk
def test_a_full_disk_refuses_produce_serves_reads_and_commits_and_recovers_when_there_is_room(tmp_path: Path):
    with small_disk(tmp_path, size_mib=192) as disk:
        (tmp_path / "trial").mkdir()
        with Trial(tmp_path / "trial", data_dir=disk / "data") as trial:
            ballast = Ballast(disk)
            with (
                trial.load(rate=300, delivery_timeout_ms=2_000, request_timeout_ms=1_000) as load,
                ringlog.Consumer(trial.node.bootstrap, group_id="g", enable_auto_commit=False) as consumer,
            ):
                load.wait_warm()
                for number in cases(short=1, full=50):
                    ballast.leave(4 << 20)
                    with trial.client() as client:
                        _fill(client)
                        _expect_reads(client)
                    _retried(lambda number=number: consumer.commit({(TOPIC, 0): number}))
                    assert _retried(lambda: consumer.committed((TOPIC, 0)).offset) == number
                    ballast.drop()
                    load.wait_writable(time.monotonic(), stretched(RECOVERED_WITHIN_S))
            with trial.client() as client:
                wait_for("room for the filler too", lambda: _is_taken(client), stretched(RECOVERED_WITHIN_S))
            trial.judge(records_min=100)


@on_a_small_disk
def test_produce_is_refused_before_the_disk_is_full_and_nothing_else_is(tmp_path: Path):
    with small_disk(tmp_path, size_mib=256) as disk:
        (tmp_path / "trial").mkdir()
        with Trial(tmp_path / "trial", data_dir=disk / "data") as trial, trial.client() as client:
            partition = client.partition_ids(TOPIC)[0]
            client.produce(partition, [b"first"])
            ballast = Ballast(disk)
            ballast.leave(8 << 20)  # less than the 5 % that are kept, and more than a record needs

            def is_refused() -> bool:
                try:
                    client.produce(partition, [b"more"])
                except DiskFull:
                    return True
                return False

            wait_for("the refusal", is_refused, within_s=stretched(3))
            # Reads, metadata and deletions go on, and no partition met the end of the disk.
            records, _ = client.read(partition, 0)
            assert records[0].value == b"first"
            client.create_topic("while-full", 1)
            with ringlog.Admin(trial.node.bootstrap) as admin:
                assert admin.delete_records(TOPIC, {0: -1})[0] >= 1
                assert admin.describe_topic(TOPIC).partitions[0].bytes == 0, "nothing is left of it"

            def told() -> list[str]:
                wrong = control.status(str(disk / "data"), sample_s=0.3).wrong
                return wrong if any("disk is full" in what for what in wrong) else []

            wrong = wait_for("the word of it", told, within_s=stretched(3))
            assert not any("disk errors" in what for what in wrong), wrong
            ballast.drop()
            wait_for("produce again", lambda: not is_refused(), within_s=stretched(RECOVERED_WITHIN_S))


@pytest.mark.parametrize("pause_s", [0.0, 0.02], ids=["at once", "piece by piece"])
@on_a_small_disk
def test_a_disk_that_others_fill_to_the_end_leaves_the_node_room_for_its_own_work(
    tmp_path: Path, pause_s: float
):
    with small_disk(tmp_path, size_mib=256) as disk:
        (tmp_path / "trial").mkdir()
        with (
            Trial(tmp_path / "trial", data_dir=disk / "data") as trial,
            ringlog.Admin(trial.node.bootstrap) as admin,
            ringlog.Consumer(trial.node.bootstrap, group_id="g", enable_auto_commit=False) as consumer,
        ):
            with trial.client() as client:
                client.produce(client.partition_ids(TOPIC)[0], [b"first"])
            reserve, ballast = disk / "data" / RESERVE_NAME, Ballast(disk)
            assert reserve.stat().st_blocks * 512 >= 5 << 20, "it is allocated, not only long"
            consumer.commit({(TOPIC, 0): 1})
            ballast.fill(pause_s)
            wait_for("the reserve to be given up", lambda: reserve.stat().st_size == 0, stretched(5))
            # Commits, metadata and recovery go on; records are refused.
            _retried(lambda: consumer.commit({(TOPIC, 0): 2}))
            _retried(lambda: admin.create_topic("on-a-full-disk", 1))
            for role, index in (("shard", 0), ("shard", 1), ("controller", 0)):
                trial.node.wait_replaced(role, index, trial.node.kill(role, index))
            _retried(lambda: consumer.commit({(TOPIC, 0): 3}))
            _retried(lambda: admin.delete_topic("on-a-full-disk"))
            with trial.client() as client:
                partition = client.partition_ids(TOPIC)[0]
                records, _ = wait_for(
                    "reads", lambda: _tried(lambda: client.read(partition, 0)), stretched(10)
                )
                assert records[0].value == b"first"
                wait_for("a refusal", lambda: _refusal(client, partition) == "DISK_FULL", stretched(10))
                trial.node.stop()
                trial.node.start()  # on the full disk
                assert _retried(lambda: consumer.committed((TOPIC, 0)).offset) == 3
                ballast.drop()
                wait_for("produce again", lambda: _refusal(client, partition) is None, stretched(10))
            wait_for("a reserve again", lambda: reserve.stat().st_size >= 5 << 20, stretched(5))


@on_a_small_disk
def test_retention_goes_on_while_the_disk_is_full_and_makes_room_again(tmp_path: Path):
    with small_disk(tmp_path, size_mib=256) as disk:
        (tmp_path / "trial").mkdir()
        with (
            Trial(tmp_path / "trial", data_dir=disk / "data") as trial,
            ringlog.Admin(trial.node.bootstrap) as admin,
            trial.client() as client,
        ):
            admin.create_topic("old", num_partitions=1, config={"segment.bytes": 1 << 20})
            (partition,) = client.partition_ids("old")
            for _ in range(48 * MIB // len(FILLER)):
                client.produce(partition, [FILLER])
            end = client.end_offset(partition)
            Ballast(disk).leave(4 * MIB)  # and it stays
            wait_for("a refusal", lambda: _refusal(client, partition) == "DISK_FULL", stretched(10))

            admin.alter_topic("old", {"retention.bytes": 4 * MIB})
            wait_for(
                "produce again", lambda: _refusal(client, partition) is None, stretched(RECOVERED_WITHIN_S)
            )
            # There is room as soon as the first segments are gone; the last ones go when they are sealed.
            most = 5 * MIB // len(FILLER)
            wait_for(
                "all that is too old to go",
                lambda: end - client.start_offset(partition) <= most,
                stretched(RECOVERED_WITHIN_S),
            )
            start = client.start_offset(partition)
            assert start < end, f"{start} to {end}"
            records, _ = client.read(partition, start)
            assert (records[0].offset, records[0].value) == (start, FILLER)


def _tried(call):
    try:
        return call()
    except RinglogError as error:
        assert error.retriable, f"{error.code}: {error}"
        return None


def _retried(call):
    """The result of a call of the client, which the end of the disk may have met in the moment that it was reached."""
    return wait_for("an answer", lambda: _tried(lambda: (call(),)), stretched(15))[0]


def _refusal(client: RawClient, partition: int) -> str | None:
    try:
        client.produce(partition, [b"more"])
    except RinglogError as error:
        assert error.retriable, f"{error.code}: {error}"
        return error.code
    return None


def _is_taken(client: RawClient) -> bool:
    try:
        client.produce(client.partition_ids("filler")[0], [b"small"])
    except RinglogError as error:
        assert error.retriable, f"{error.code}: {error}"
        return False
    return True


def _fill(client: RawClient) -> None:
    """Produce to a topic of its own until the node says that the disk is full, and in no other words."""
    try:
        client.create_topic("filler", 1)
    except RinglogError as error:
        assert error.code in ("TOPIC_EXISTS", "DISK_FULL"), f"{error.code}: {error}"
    (partition,) = client.partition_ids("filler")
    refused_at = 0.0
    until = time.monotonic() + stretched(20)
    # For a second it goes on being refused: it is a state, not an accident.
    while not refused_at or time.monotonic() < refused_at + 1.0:
        assert time.monotonic() < until, "the disk is full, and the node does not say so"
        try:
            client.produce(partition, [FILLER])
        except RinglogError as error:
            assert error.retriable, f"{error.code}: {error}"
            assert error.code in ("DISK_FULL", "PARTITION_BUSY", "PARTITION_FENCED"), f"{error.code}: {error}"
            if error.code == "DISK_FULL":
                refused_at = refused_at or time.monotonic()
            time.sleep(0.02)


def _expect_reads(client: RawClient) -> None:
    """Everything below the readable offset is served while the disk is full."""
    for partition in client.partition_ids(TOPIC):

        def is_read(partition: int = partition) -> bool:
            at, end = client.start_offset(partition), client.end_offset(partition)
            while at < end:
                _, at = client.read(partition, at)
            return True

        assert wait_for("reads while the disk is full", is_read, within_s=stretched(5))


def test_who_may_not_mount_has_the_test_run_in_a_namespace(tmp_path: Path):
    """The way of others than root, taken by root: the same test, on a tmpfs."""
    here = Path(__file__)
    run_in_namespace(f"{here}::test_produce_is_refused_before_the_disk_is_full_and_nothing_else_is")
