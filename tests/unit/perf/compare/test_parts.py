"""The parts of a comparison that need no broker: records, wires, the open loop, what a check rejects."""

from __future__ import annotations

import time

import numpy as np
import pytest

from perf.compare import open_loop
from perf.compare.clients.api import STAMP_BYTES, Receiver, Sender, stamps_of
from perf.compare.clients.kafka_clients import fetched, steady_state
from perf.compare.clients.nats_client import Messages
from perf.compare.clients.redis_client import additions, command
from perf.compare.model import Durability, Workload
from perf.compare.payload import Payload, checksum_of, text_record
from perf.compare.run import DeliveryFailed, expected_checksum, split, verify
from perf.compare.scale import FULL, QUICK, latency_workloads, scaling_workloads, throughput_workloads
from perf.compare.worker import Outcome


def test_a_lost_a_doubled_and_a_changed_record_are_each_found():
    payload = Payload(100, pool_bytes=1_000)
    rows = payload.rows()
    right = payload.checksum(10)
    verify(Outcome(10, 1.0, 0.0, checksum_of(reversed(rows))), 10, right)
    for wrong in (rows[:9], [*rows[:9], rows[0]], [*rows[:9], bytes(100)]):
        with pytest.raises(DeliveryFailed):
            verify(Outcome(len(wrong), 1.0, 0.0, checksum_of(wrong)), 10, right)


def test_the_expected_checksum_sums_all_producers_shares():
    workload = Workload(100, 4, 3, Durability.D1)
    payload = Payload(100)
    sent = [row for share in split(1_000, 3) for row in payload.rows()[:share]]
    assert expected_checksum("ringlog", workload, split(1_000, 3)) == checksum_of(sent)
    assert expected_checksum("kafka", workload, [3]) == checksum_of([text_record(100)] * 3)


def test_nats_messages_are_the_same_however_the_socket_cuts_them():
    said = (
        b"MSG a.0 1 2\r\n\r\n\r\nPING\r\nHMSG _out.3 1 12 14\r\nNATS/1.0 x\r\nhi\r\nMSG a.1 1 r 3\r\nabc\r\n"
    )
    whole = list(Messages().feed(said))
    assert [body for _, body in whole] == [b"\r\n", b"", b"NATS/1.0 x\r\nhi", b"abc"]
    for cut in range(len(said)):
        parts = Messages()
        assert [*parts.feed(said[:cut]), *parts.feed(said[cut:])] == whole


def test_a_redis_pipeline_is_one_command_for_each_record():
    values = np.frombuffer(b"onetwo", dtype=np.uint8).reshape(2, 3)
    expected = command("XADD", "t-1", "*", "v", b"one") + command("XADD", "t-1", "*", "v", b"two")
    assert additions("t-1", values) == expected


def test_words_of_kafkas_tools_that_say_nothing_are_an_error():
    with pytest.raises(ValueError, match="steady state"):
        steady_state("200 records sent, 5 records/sec")
    with pytest.raises(ValueError, match="what it read"):
        fetched("WARNING: Exiting before consuming the expected number of records")


class Belt(Sender, Receiver):
    """What is sent can be received at once."""

    def __init__(self):
        self.bursts = []

    def send(self, values):
        self.bursts.append((time.monotonic_ns(), values))

    def finish(self):
        pass

    def receive_stamps(self, timeout_s):
        return stamps_of([row.tobytes() for row in self.bursts.pop(0)[1]] if self.bursts else [])


def test_every_record_carries_the_moment_it_was_due_and_none_is_sent_before():
    belt, plan = Belt(), open_loop.Plan(100, 50, rate_per_s=2_000, bursts_per_s=500)
    seconds = open_loop.send(belt, plan, Payload(100))
    assert sum(len(values) for _, values in belt.bursts) == 50
    dues = [int(values[0, :STAMP_BYTES].copy().view(np.int64)[0]) for _, values in belt.bursts]
    assert all(sent_ns >= due_ns for (sent_ns, _), due_ns in zip(belt.bursts, dues, strict=True))
    assert np.diff(dues).tolist() == pytest.approx([2_000_000] * 12, abs=2)
    assert seconds >= plan.due_s(plan.bursts - 1)


def test_a_wait_counts_from_the_due_moment_also_when_the_sender_was_late():
    belt = Belt()
    values = Payload(100).pool[:3].copy()
    due_ns = time.monotonic_ns() - 50_000_000
    values[:, :STAMP_BYTES] = np.frombuffer(due_ns.to_bytes(STAMP_BYTES, "little"), dtype=np.uint8)
    belt.send(values)
    assert all(wait_ms >= 50 for wait_ms in open_loop.receive(belt, 3))


def test_records_that_never_come_are_counted_as_missing(monkeypatch):
    monkeypatch.setattr(open_loop, "COUNT_SILENCE_S", 0.05)
    belt = Belt()
    belt.send(Payload(100).pool[:7])
    assert open_loop.count(belt, 10) == 7


def test_the_scales_cover_the_axes():
    names = {workload.name for workload in throughput_workloads(QUICK)}
    assert {f"{size}.p16.x1.{d}" for size in ("100B", "1KB") for d in ("D0", "D1", "D2")} == names
    assert all(workload.durability is not Durability.D0 for workload in latency_workloads(FULL))
    scaling = list(scaling_workloads(FULL))
    assert {1, 16, 1_000, 10_000} == {workload.partitions for workload in scaling}
    assert {100, 1_000_000} <= {workload.record_bytes for workload in scaling}
    assert {1, 2} <= {workload.producers for workload in scaling}
    assert len(set(scaling)) == len(scaling)
