"""Appends through a shard: acknowledged when the disk says so, in order, once; refused with what helps."""

from __future__ import annotations

import pytest

from ringlog.controller.topic_config import COMPRESSIONS
from ringlog.errors import CorruptBatch, InvalidRequest, PartitionFenced, StaleMetadata
from ringlog.model import Codec, Durability
from ringlog.native import _kernel
from ringlog.net.framing import Acks, Api
from ringlog.net.messages import DescribePartitionsRequest
from ringlog.records.checksum import crc32c
from ringlog.records.decode import decode
from ringlog.records.encode import encode
from ringlog.records.format import codec_of
from ringlog.records.scan import check
from ringlog.ring.frame import due_at
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults
from tests.support.logs import batch_of
from tests.support.shard_world import ShardWorld


@pytest.fixture
def world() -> ShardWorld:
    world = ShardWorld()
    world.create(1)
    return world


def test_nothing_is_acknowledged_before_the_disk_has_it(world):
    world.disk.hold_all()
    world.produce(b"a")
    world.settle()
    assert world.net.replies == []
    world.disk.release_all()
    world.settle()
    assert [reply.produced.durability for reply in world.net.take()] == [Durability.FLUSHED]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_compacted_topic_refuses_a_batch_with_a_record_that_has_no_key(world, codec):
    world.create(2, topic_id=2, name="table", cleanup_policy="compact")
    keyless = encode([b"a", b"b", b"c"], keys=[b"k", None, b"k"], timestamps=1, codec=codec)
    keyed = encode([b"a", None, b"c"], keys=[b"k", b"", b"k"], timestamps=1, codec=codec)
    for batch in (keyless, keyed):
        world.send(Api.PRODUCE, bytes(batch), partition=2, flags=Acks.ALL)
    world.send(Api.PRODUCE, bytes(keyless), partition=1, flags=Acks.ALL)
    world.settle()
    refused, table, other = world.net.take()
    assert (refused.error.code, refused.error.retriable) == ("INVALID_RECORD", False)
    assert "record 1 of the batch" in refused.error.message
    assert (table.produced.base_offset, other.produced.base_offset) == (0, 0)


@pytest.mark.parametrize("before", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize("word", ["uncompressed", "lz4", "zstd"])
def test_a_topic_with_a_codec_keeps_every_batch_under_it(world, before, word):
    world.create(2, topic_id=2, name="folded", compression_type=word)
    batch = encode(
        [b"value"] * 500, timestamps=5, codec=before, producer_id=9, producer_epoch=0, base_sequence=0
    )
    for _ in range(2):  # the second is a retry
        world.send(Api.PRODUCE, bytes(batch), partition=2, flags=Acks.ALL)
    world.settle()
    first, again = (reply.produced for reply in world.net.take())
    assert (first.base_offset, first.repeated, again.base_offset, again.repeated) == (0, 0, 0, 1)
    world.fetch((2, 0))
    data = world.only_fetched()[1][2].data
    assert codec_of(int(check(data)[0]["attributes"])) is COMPRESSIONS[word]
    assert [(record.offset, record.timestamp, record.value) for record in decode(data)] == [
        (offset, 5, b"value") for offset in range(500)
    ]
    assert world.stats.counts["bytes_in"] == len(batch), "what came counts, not what is kept"


def test_a_batch_that_grows_beyond_the_bound_of_its_topic_is_refused(world):
    world.create(2, topic_id=2, name="flat", compression_type="uncompressed", max_message_bytes="2000")
    for size in (1000, 3000):
        batch = encode([bytes(size)], timestamps=5, codec=Codec.ZSTD)
        assert len(batch) < 200
        world.send(Api.PRODUCE, bytes(batch), partition=2, flags=Acks.ALL)
    world.settle()
    refused, taken = sorted(world.net.take(), key=lambda reply: reply.error is None)
    assert refused.error.code == "BATCH_TOO_LARGE"
    assert taken.produced.base_offset == 0


def test_a_codec_that_a_topic_gets_later_is_that_of_later_batches(world):
    world.produce(b"before" * 50)
    world.configure(compression_type="gzip")
    world.produce(b"after" * 50)
    world.settle()
    world.net.take()
    world.fetch((1, 0))
    data = world.only_fetched()[1][1].data
    assert [codec_of(int(row["attributes"])) for row in check(data)] == [Codec.NONE, Codec.GZIP]
    assert [record.value for record in decode(data)] == [b"before" * 50, b"after" * 50]


def test_a_topic_with_a_codec_refuses_what_does_not_unfold(world):
    world.create(2, topic_id=2, name="folded", compression_type="lz4")
    good = encode([b"value"] * 50, timestamps=5, codec=Codec.ZSTD)
    spoilt = _kernel.fold(good, bytes(good[61:-4]) + b"oops", Codec.ZSTD)
    world.send(Api.PRODUCE, bytes(spoilt), partition=2, flags=Acks.ALL)
    (reply,) = world.net.take()
    assert (reply.error.code, reply.error.retriable) == ("CORRUPT_BATCH", False)
    assert world.log(2).next_offset == 0


def test_acknowledgements_come_in_the_order_of_the_offsets(world):
    asked = [world.produce(b"x" * 100) for _ in range(50)]
    world.settle()
    replies = world.net.take()
    assert [reply.correlation for reply in replies] == asked
    assert [reply.produced.base_offset for reply in replies] == list(range(50))


def test_a_reply_goes_back_to_the_client_that_asked(world):
    world.send(Api.PRODUCE, bytes(batch_of(b"a")), session=41, flags=Acks.LEADER)
    world.send(Api.PRODUCE, bytes(batch_of(b"b")), session=42, flags=Acks.ALL, outlet=world.other_net)
    world.settle()
    assert [reply.session for reply in world.net.take()] == [41]
    assert [reply.session for reply in world.other_net.take()] == [42]


def test_a_repeat_is_answered_with_the_first_offset(world):
    world.produce(b"a", producer=(5, 0, 0))
    world.settle()
    world.produce(b"a", producer=(5, 0, 0))
    first, again = (reply.produced for reply in world.net.take())
    assert (again.base_offset, again.repeated) == (first.base_offset, 1)
    assert world.log().next_offset == 1


def test_a_repeat_of_a_batch_in_flight_waits_for_it(world):
    world.disk.hold_all()
    world.produce(b"a", producer=(5, 0, 0))
    world.produce(b"b", producer=(5, 0, 1))
    world.run()
    world.produce(b"a", producer=(5, 0, 0))
    world.settle()
    assert world.net.replies == []
    world.disk.release_all()
    world.settle()
    produced = [reply.produced for reply in world.net.take()]
    assert sorted((p.base_offset, p.repeated) for p in produced) == [(0, 0), (0, 1), (1, 0)]


def test_a_repeat_has_the_time_of_the_first_append():
    world = ShardWorld()
    world.create(1, message_timestamp_type="LogAppendTime")
    began_ms = world.now_ms
    world.produce(b"a", producer=(5, 0, 0))
    world.settle()
    world.at(after_ms=500)
    world.produce(b"a", producer=(5, 0, 0))
    world.at(after_ms=500)
    world.disk.hold_all()
    world.produce(b"b", producer=(5, 0, 1))
    world.at(after_ms=500)
    world.produce(b"b", producer=(5, 0, 1))  # of one that is still on its way to the disk
    world.disk.release_all()
    world.settle()
    times_ms = [reply.produced.append_time_ms - began_ms for reply in world.net.take()]
    assert times_ms == [0, 0, 1000, 1000]


def test_a_repeat_of_a_batch_with_its_own_times_has_none_of_the_append(world):
    world.produce(b"a", producer=(5, 0, 0))
    world.settle()
    world.configure(message_timestamp_type="LogAppendTime")
    world.produce(b"a", producer=(5, 0, 0))
    assert [reply.produced.append_time_ms for reply in world.net.take()] == [-1, -1]


def test_a_request_whose_client_has_given_up_is_refused_and_not_done(world):
    batch = bytes(batch_of(b"late"))
    world.send(Api.PRODUCE, batch, flags=Acks.ALL, due_ms=due_at(world.now_ms, 500))
    world.at(after_ms=500)
    late = due_at(world.now_ms - 500, 500)
    world.send(Api.PRODUCE, batch, flags=Acks.ALL, due_ms=late)
    world.send(Api.PRODUCE, batch, flags=Acks.NONE, due_ms=late)
    world.send(Api.DESCRIBE_PARTITIONS, DescribePartitionsRequest([1]), due_ms=late)
    world.settle()
    errors = [reply.error for reply in world.net.take()]
    assert [error.code for error in errors if error] == ["REQUEST_TIMEOUT"] * 2
    assert all(error.retriable for error in errors if error)
    assert world.log().next_offset == 1


def test_deadlines_hold_while_the_clock_goes_round(world):
    world.at(after_ms=2**32 - world.now_ms - 100)  # the field goes round in 100 ms
    due_ms = due_at(world.now_ms, 500)
    assert due_ms < 500
    world.send(Api.PRODUCE, bytes(batch_of(b"in time")), flags=Acks.ALL, due_ms=due_ms)
    world.at(after_ms=499)
    world.send(Api.PRODUCE, bytes(batch_of(b"just in time")), flags=Acks.ALL, due_ms=due_ms)
    world.at(after_ms=1)
    world.send(Api.PRODUCE, bytes(batch_of(b"late")), flags=Acks.ALL, due_ms=due_ms)
    world.settle()
    assert sorted(reply.error is None for reply in world.net.take()) == [False, True, True]


def test_acks_0_is_never_answered(world):
    world.produce(b"a", acks=Acks.NONE)
    world.settle()
    assert (world.net.replies, world.log().readable_offset) == ([], 1)


def test_acks_3_is_answered_when_the_batch_is_in_memory(world):
    world.produce(b"a", acks=Acks.RECEIVED)
    (reply,) = world.net.take()
    assert (reply.produced.base_offset, reply.produced.durability) == (0, Durability.RECEIVED)
    assert world.log().written_offset == 0
    world.settle()
    assert (world.net.replies, world.log().readable_offset) == ([], 1)


def test_acks_3_is_told_when_there_is_no_room(world, monkeypatch):
    monkeypatch.setattr("ringlog.log.admission.PENDING_BYTES_PER_PARTITION_MAX", 10)
    world.produce(b"a", acks=Acks.RECEIVED)
    (reply,) = world.net.take()
    assert (reply.error.code, reply.error.retriable) == ("PARTITION_BUSY", True)


def test_acks_0_is_not_answered_when_refused_either(world):
    world.send(Api.PRODUCE, b"rubbish", flags=Acks.NONE)
    world.produce(b"a", partition=99, acks=Acks.NONE)
    assert world.net.replies == []


@pytest.mark.parametrize("body", [b"", b"rubbish", b"\0" * 61], ids=["none", "short", "zeros"])
def test_bytes_that_are_no_batch_are_refused_as_corrupt(world, body):
    world.send(Api.PRODUCE, body, flags=Acks.ALL)
    (reply,) = world.net.take()
    assert (reply.error.code, reply.error.retriable) == ("CORRUPT_BATCH", False)


def test_a_batch_with_a_flipped_bit_is_refused(world):
    batch = batch_of(b"value")
    batch[-2] ^= 1
    world.send(Api.PRODUCE, bytes(batch), flags=Acks.ALL)
    (reply,) = world.net.take()
    assert reply.error.code == "CORRUPT_BATCH"


def test_transactional_batches_are_refused(world):
    batch = encode([b"a"], timestamps=0, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    world.send(Api.PRODUCE, bytes(batch), flags=Acks.ALL)
    (reply,) = world.net.take()
    assert reply.error.code == "INVALID_REQUEST"


def test_an_unknown_partition_is_refused_so_that_the_client_asks_for_metadata(world):
    world.produce(b"a", partition=99)
    (reply,) = world.net.take()
    assert (reply.error.code, reply.error.retriable) == (StaleMetadata.code, True)


def test_an_unknown_api_is_refused(world):
    world.send(77, b"")
    (reply,) = world.net.take()
    assert reply.error.code == "UNSUPPORTED_VERSION"


def fenced_world() -> ShardWorld:
    """A shard with a batch that is not acknowledged, on a log that a failed write has fenced."""
    faults = Faults()
    world = ShardWorld(disk=FakeDisk(seed=1, faults=faults))
    world.create(1)
    world.fill(b"before")
    for number in range(400):
        faults.fail("write", nth=world.disk._kinds["write"] + number)
    world.produce(b"lost?")
    world.settle()
    faults._by_kind.clear()
    return world


def test_a_disk_error_refuses_retriably_all_that_waits():
    world = fenced_world()
    (reply,) = world.net.take()
    assert (reply.error.code, reply.error.retriable) == (PartitionFenced.code, True)


def test_while_a_fenced_partition_is_closed_its_requests_are_refused_retriably():
    world = fenced_world()
    world.net.take()
    world.produce(b"b")
    (reply,) = world.net.take()
    assert (reply.error.code, reply.error.retriable) == ("PARTITION_BUSY", True)


def test_a_fenced_partition_is_opened_anew_and_takes_appends_again():
    world = fenced_world()
    world.net.take()
    world.at(1000)
    world.core.hosting.work(world.now_ms)
    offset = world.log().next_offset
    world.produce(b"after")
    world.settle()
    (reply,) = world.net.take()
    assert reply.produced.base_offset == offset >= 1


def test_a_fence_is_counted():
    assert fenced_world().stats.counts["fenced"] == 1


def test_who_died_is_not_answered(world):
    world.disk.hold_all()
    world.produce(b"a")
    world.produce(b"b", outlet=world.other_net)
    world.core.forget(world.net)
    world.disk.release_all()
    world.settle()
    assert (len(world.net.replies), len(world.other_net.replies)) == (0, 1)


def test_what_came_in_is_counted_once_and_repeats_are_not(world):
    for _ in range(2):
        world.produce(b"a", b"b", producer=(5, 0, 0))
    counts = world.stats.counts
    assert (counts["records_in"], counts["batches_in"]) == (2, 1)


def test_flush_os_is_acknowledged_as_written():
    world = ShardWorld()
    world.create(1, flush="os")
    world.produce(b"a")
    world.settle()
    (reply,) = world.net.take()
    assert reply.produced.durability == Durability.WRITTEN


def test_a_batch_with_a_producer_and_no_sequence_is_refused(world):
    """Two such batches would look like one and its repeat: the second would be acknowledged and dropped."""
    for producer in ((5, 0, -1), (5, -1, 0)):
        world.produce(b"a", producer=producer)
        (reply,) = world.net.take()
        assert reply.error.code == InvalidRequest.code
    assert world.log().next_offset == 0


@pytest.mark.parametrize("bit", [3, 4, 5, 6, 9])
def test_attributes_that_are_not_a_clients_to_set_are_refused(world, bit):
    batch = bytearray(batch_of(b"a"))
    batch[21:23] = (1 << bit).to_bytes(2, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    world.send(Api.PRODUCE, bytes(batch), flags=Acks.ALL)
    world.settle()
    (reply,) = world.net.take()
    assert reply.error.code in (InvalidRequest.code, CorruptBatch.code)
    assert world.log().next_offset == 0
