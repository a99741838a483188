"""kill -9 of a shard that compacts, under load: the latest of each key stays, and readers see each record once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import ringlog
from ringlog.client.records import ConsumerRecord
from ringlog.log.findings import Rule as LogRule
from tests.support.amounts import cases, chance
from tests.support.checkers.disk import check_disk
from tests.support.checkers.violations import report
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.trial import Trial

SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": 1 << 20,
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": 1000,
}
KEYS = [b"key-%d" % number for number in range(12)]
PLACE = ("table", 0)


def read_all(consumer: ringlog.Consumer) -> list[ConsumerRecord]:
    """All that is there now, in the order in which it came."""
    consumer.seek_to_beginning()
    end, found = consumer.end_offsets([PLACE])[PLACE], []
    until = time.monotonic() + stretched(30)
    while consumer.position(PLACE) < end:
        assert time.monotonic() < until, "the end is not reached"
        found += consumer.poll(timeout_ms=200)
    assert [one.offset for one in found] == sorted({one.offset for one in found}), "each once, in order"
    return found


@pytest.mark.timeout(3600)
def test_a_shard_that_dies_while_it_compacts_loses_no_latest_record_and_brings_no_deleted_one_back(
    tmp_path: Path,
):
    rng = chance("compaction")
    sent: dict[int, tuple[bytes, bytes | None]] = {}
    with Trial(tmp_path, shards=1, partitions=1) as trial, ringlog.Admin(trial.node.bootstrap) as admin:
        admin.create_topic("table", 1, config=SETTINGS)
        with (
            ringlog.Producer(trial.node.bootstrap, linger_ms=1) as producer,
            ringlog.Consumer(trial.node.bootstrap) as consumer,
        ):
            consumer.assign([PLACE])
            for _ in cases(short=4, full=200):
                old_pid = trial.node.pid_of("shard")
                futures = []
                for _ in range(40):
                    key = rng.choice(KEYS)
                    value = None if rng.random() < 0.2 else rng.randbytes(8) + bytes(rng.randint(1, 60_000))
                    futures.append((key, value, producer.produce("table", value, key=key, partition=0)))
                    time.sleep(rng.uniform(0, 0.01))
                    if len(futures) == 20:
                        trial.node.kill("shard")
                for key, value, future in futures:
                    sent[future.result(stretched(20)).offset] = (key, value)
                trial.node.wait_replaced("shard", 0, old_pid)
                for one in read_all(consumer):
                    assert sent[one.offset] == (one.key, one.value)
            wait_for("compaction", lambda: len(read_all(consumer)) < len(sent) // 2, stretched(30))
            found = read_all(consumer)
        latest = {key: offset for offset, (key, _) in sorted(sent.items())}
        newest = {one.key: one.offset for one in found}
        for key, offset in latest.items():
            if sent[offset][1] is None:  # its tombstone may be gone, but then nothing of the key is left
                assert newest.get(key) in (offset, None), f"{key!r} was deleted at {offset}"
            else:
                assert newest[key] == offset
        assert trial.node.stop() == 0
        # A stop does not wait for a pass of compaction: what that has made so far is removed or named by the next open.
        interrupted = f"[{LogRule.UNFINISHED.code}]"
        broken = [one for one in check_disk(trial.node.data_dir) if not one.found.endswith(interrupted)]
        broken += trial.node.watch.leaks(within_s=1)
        assert not broken, report(broken)
