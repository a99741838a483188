"""The parts of a comparison that need no broker: records, wires, the open loop, what a check rejects."""

from __future__ import annotations

import struct
import time
import zlib

import numpy as np
import pytest

from perf.compare import open_loop
from perf.compare.clients import rabbitmq_wire
from perf.compare.clients.api import STAMP_BYTES, Receiver, Sender, stamps_of
from perf.compare.clients.kafka_clients import fetched, steady_state
from perf.compare.clients.nats_client import Messages
from perf.compare.clients.pipeline import StepProducer
from perf.compare.clients.rabbitmq_wire import Frames
from perf.compare.clients.redis_client import additions, command
from perf.compare.model import Durability, Workload
from perf.compare.payload import Payload, checksum_of, text_record
from perf.compare.plots import COLOURS
from perf.compare.run import DeliveryFailed, expected_checksum, split, verify
from perf.compare.scale import FULL, QUICK, latency_workloads, scaling_workloads, throughput_workloads
from perf.compare.systems import PEERS, SYSTEMS
from perf.compare.tables import TITLES
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


def test_rabbitmq_frames_are_the_same_however_the_socket_cuts_them():
    said = (
        rabbitmq_wire.frame(3, b"confirmed") + rabbitmq_wire.frame(0x8007) + rabbitmq_wire.frame(8, bytes(50))
    )
    whole = list(Frames().feed(said))
    assert whole == [(3, b"confirmed"), (0x8007, b""), (8, bytes(50))]
    for cut in range(len(said)):
        parts = Frames()
        assert [*parts.feed(said[:cut]), *parts.feed(said[cut:])] == whole


def delivery(entries, count, *, crc=None, kind=0):
    """A delivery to subscription 7 of a chunk with these entries."""
    crc = zlib.crc32(entries) if crc is None else crc
    head = struct.pack(">BBHIqQQIIII", 0x51, kind, count, 0, 0, 1, 0, crc, len(entries), 0, 0)
    return b"\x07" + head + entries


def test_what_a_rabbitmq_producer_batches_its_consumer_unpacks():
    pool = Payload(100, pool_bytes=1_000).pool
    data, entries = rabbitmq_wire.publish(1, 0, pool, entry_records=4)
    assert entries == 3
    frames = list(Frames().feed(data))
    published = frames[0][1][5:]
    stored = b""  # the server keeps entries without their publishing ids
    for records in (4, 4, 2):
        size = 11 + records * 104
        stored, published = stored + published[8 : 8 + size], published[8 + size :]
    plain = len(b"ab").to_bytes(4, "big") + b"ab"
    number, found = rabbitmq_wire.delivered(delivery(stored + plain, 4))
    values = [bytes(value) for values in found for value in values]
    assert (number, published) == (7, b"")
    assert values == [*(row.tobytes() for row in pool), b"ab"]


def test_a_damaged_and_a_compressed_chunk_of_rabbitmq_are_refused_and_its_notes_are_no_records():
    entry = b"\x80\x00\x01" + (6).to_bytes(4, "big") * 2 + (2).to_bytes(4, "big") + b"ab"
    with pytest.raises(ValueError, match="checksum"):
        rabbitmq_wire.delivered(delivery(entry, 1, crc=5))
    with pytest.raises(ValueError, match="compressed"):
        rabbitmq_wire.delivered(delivery(b"\x90" + entry[1:], 1))
    assert rabbitmq_wire.delivered(delivery(entry, 1, kind=1)) == (7, [])


class Sent(StepProducer):
    """Keeps what it sends."""

    def __init__(self):
        self.values = []
        self.finished = 0

    def produce(self, payload, records):
        return self.steps(payload, records, 3)

    def send(self, values):
        assert self.finished == 0
        self.values.append(values.copy())

    def finish(self):
        self.finished += 1


@pytest.mark.parametrize("records", [1, 7, 10, 11, 25])
def test_steps_through_the_pool_are_what_the_checksum_expects(records):
    payload, sent = Payload(100, pool_bytes=1_000), Sent()
    assert sent.produce(payload, records).records == records
    rows = [row for values in sent.values for row in values]
    assert len(rows) == records and checksum_of(rows) == payload.checksum(records)
    assert sent.finished == 1 and all(0 < len(values) <= 3 for values in sent.values)


def test_a_peer_without_flushes_is_measured_at_what_it_has():
    wanted = Workload(100, 16, 1, Durability.D2)
    assert PEERS["rabbitmq"].offered(wanted).durability is Durability.D1
    for name in ("ringlog", "kafka", "nats", "redis"):
        assert all(
            PEERS[name].offered(Workload(100, 16, 1, durability)).durability is durability
            for durability in Durability
        )


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


def test_every_system_is_a_client_of_a_peer_and_has_a_title_and_a_colour():
    assert {name for peer in PEERS.values() for name in peer.systems} == set(SYSTEMS)
    assert set(TITLES) == set(COLOURS) == set(SYSTEMS)
