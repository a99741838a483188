"""A full disk: produce is refused with a typed error, reads go on, and the node recovers by itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ringlog.errors import RinglogError
from tests.support.amounts import amount
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.raw_client import RawClient
from tests.support.small_disk import Ballast, small_disk
from tests.support.trial import TOPIC, Trial

RECOVERED_WITHIN_S = 10.0


@pytest.mark.timeout(3600)
def test_a_full_disk_refuses_produce_serves_reads_and_recovers_when_there_is_room(tmp_path: Path):
    with small_disk(tmp_path, size_mib=192) as disk:
        (tmp_path / "trial").mkdir()
        with Trial(tmp_path / "trial", data_dir=disk / "data") as trial:
            ballast = Ballast(disk)
            with trial.load(rate=300, delivery_timeout_ms=2_000, request_timeout_ms=1_000) as load:
                load.wait_warm()
                for _ in range(amount(short=1, full=50)):
                    ballast.leave(4 << 20)
                    with trial.client() as client:
                        _fill(client)
                        _expect_reads(client)
                    ballast.drop()
                    load.wait_writable(time.monotonic(), stretched(RECOVERED_WITHIN_S))
            with trial.client() as client:
                wait_for("room for the filler too", lambda: _is_taken(client), stretched(RECOVERED_WITHIN_S))
            trial.judge(records_min=100)


FILLER = b"\xee" * 200_000


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
