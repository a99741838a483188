"""Bad input on the live socket: typed errors, bounded memory, the same processes before and after."""

from __future__ import annotations

import pickle

import pytest

from ringlog.client.consumer import Consumer
from ringlog.errors import CorruptBatch, RinglogError, UnreadableBatch
from ringlog.limits import FRAME_BYTES_MAX, MIB, RECOMPRESSED_BYTES_MAX, UNFINISHED_BYTES_MAX
from ringlog.model import Codec
from ringlog.net.framing import Api, Flag
from ringlog.net.messages import (
    DescribePartitionsReply,
    ErrorReply,
    ListOffsetsReply,
    decode_body,
    unpack_fetch_reply,
)
from ringlog.net.wire_errors import NUMBERS
from ringlog.records.encode import encode
from tests.support import bad_frames
from tests.support.amounts import cases, chance
from tests.support.memory import peak_bytes
from tests.support.patience import stretched
from tests.support.trial import TOPIC, Trial
from tests.support.unharmed import GROWTH_MAX_BYTES, OURS, answer, unharmed
from tests.support.zmtp import MORE, ZmtpPeer, frame_head


@pytest.fixture(scope="module")
def victim(shared_trial: Trial) -> int:
    """A partition that may be spoilt; the good client uses another topic."""
    with shared_trial.client() as client:
        client.create_topic("victim", 1)
        return client.partition_ids("victim")[0]


@pytest.mark.parametrize("what", bad_frames.known(0, TOPIC))
def test_a_frame_that_is_wrong_is_answered_with_a_typed_error(shared_trial: Trial, victim: int, what: str):
    with unharmed(shared_trial), shared_trial.client() as client:
        error = answer(client, bad_frames.known(victim, "victim")[what])
        assert error.code in NUMBERS, error
        assert error.code not in OURS, error
        assert len(error.message) > 10, "a sentence that says what is wrong"


@pytest.mark.parametrize("what", bad_frames.extreme(0))
def test_numbers_and_lists_at_their_ends_are_answered_and_do_no_harm(
    shared_trial: Trial, victim: int, what: str
):
    with unharmed(shared_trial), shared_trial.client() as client:
        client.send(bad_frames.extreme(victim)[what])
        reply = client.next_reply(timeout_s=stretched(4))
        assert reply is not None, "no answer"
        header, body = reply
        if header.flags & Flag.ERROR:
            error = decode_body(body, ErrorReply)
            assert error.code in NUMBERS, error
            assert error.code not in OURS, error


def test_a_wrong_row_has_its_own_error_and_the_reply_is_whole(shared_trial: Trial, victim: int):
    with unharmed(shared_trial), shared_trial.client() as client:
        for what, (api, body) in bad_frames.rows_with_errors(victim).items():
            try:
                reply = client.request(api, body, partition=victim)
            except RinglogError as error:
                assert error.code not in OURS, f"{what}: {error.code}: {error}"
                continue
            if api is Api.FETCH:
                errors = [row.error for row in unpack_fetch_reply(reply)[1]]
            elif api is Api.LIST_OFFSETS:
                errors = [row.error for row in decode_body(reply, ListOffsetsReply).found]
            else:
                errors = [row.error for row in decode_body(reply, DescribePartitionsReply).partitions]
            assert errors, what
            assert not {0, NUMBERS["INTERNAL"], NUMBERS["INVARIANT_BROKEN"]} & set(errors), what


def test_frames_shorter_than_a_header_do_no_harm(shared_trial: Trial):
    with unharmed(shared_trial), shared_trial.client() as client:
        for size in range(32):
            client.send(bytes(size))
        assert client.metadata([]).node_id >= 0


def test_a_message_of_many_parts_does_no_harm(shared_trial: Trial):
    with unharmed(shared_trial), ZmtpPeer(shared_trial.node.port) as peer:
        for number in range(2000):
            peer.message(b"part", MORE if number % 50 != 49 else 0)


def test_a_peer_whose_message_never_ends_is_cut_off_and_its_memory_freed(shared_trial: Trial):
    with unharmed(shared_trial), ZmtpPeer(shared_trial.node.port, timeout_s=20) as peer:
        part = bytes(1 * MIB)
        sent = sum(peer.message(part, MORE) for _ in range(UNFINISHED_BYTES_MAX // MIB + 4))
        assert sent > GROWTH_MAX_BYTES // MIB
        assert peer.is_closed_by_peer(stretched(3))


def test_clients_that_come_and_go_cost_no_memory(shared_trial: Trial):
    with unharmed(shared_trial):
        for _ in cases(short=300, full=20_000):
            with shared_trial.client() as client:
                client.metadata([])


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, -1])
def test_a_peer_that_announces_too_long_a_message_is_cut_off(shared_trial: Trial, length: int):
    with unharmed(shared_trial):
        for _ in cases(short=20, full=10_000):
            with ZmtpPeer(shared_trial.node.port) as peer:
                peer.send(frame_head(0, length) + bytes(1000))
                assert peer.is_closed_by_peer(stretched(3))


def test_oversize_frames_through_a_whole_connection_cost_no_memory(shared_trial: Trial):
    with unharmed(shared_trial):
        for _ in cases(short=5, full=200):
            with shared_trial.client() as client:
                client.send(bad_frames.OVERSIZE)
                assert client.next_reply(timeout_s=0.05) is None


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_compression_bomb_costs_the_node_no_memory(shared_trial: Trial, victim: int, codec: Codec):
    with unharmed(shared_trial), shared_trial.client() as client:
        bomb = bad_frames.bomb(codec, 100 * MIB)
        for _ in cases(short=10, full=10_000):
            try:
                client.produce_bytes(victim, bomb)
            except RinglogError as error:
                assert error.code in ("CORRUPT_BATCH", "BATCH_TOO_LARGE", "CORRUPT_FRAME"), error.code


@pytest.mark.parametrize("word", ["uncompressed", "lz4"])
def test_a_topic_that_unfolds_what_it_gets_is_not_harmed_by_bombs(shared_trial: Trial, word: str):
    bombs = [bad_frames.bomb(codec, 100 * MIB) for codec in (Codec.GZIP, Codec.ZSTD)]
    # Records as they should be, only very large ones: up to the bound they are compressed anew.
    large = [
        bytes(encode([bytes(MIB)] * count, timestamps=1, codec=Codec.ZSTD))
        for count in (RECOMPRESSED_BYTES_MAX // MIB - 1, RECOMPRESSED_BYTES_MAX // MIB + 1)
    ]
    with unharmed(shared_trial), shared_trial.client(timeout_s=stretched(10)) as client:
        client.create_topic(f"unfolding-{word}", 1, **{"compression.type": word})
        (partition,) = client.partition_ids(f"unfolding-{word}")
        taken = 0
        for _ in cases(short=2, full=300):
            for data in (*bombs, *large):
                try:
                    client.produce_bytes(partition, data)
                    taken += 1
                except RinglogError as error:
                    assert error.code in ("CORRUPT_BATCH", "BATCH_TOO_LARGE"), error.code
        assert taken == (0 if word == "uncompressed" else len(cases(short=2, full=300)))


@pytest.mark.parametrize(("codec", "ratio_min"), [(Codec.GZIP, 900), (Codec.LZ4, 200), (Codec.ZSTD, 10_000)])
def test_a_consumer_of_a_bomb_gets_what_is_before_it_then_a_typed_error_and_may_go_on(
    shared_trial: Trial, codec: Codec, ratio_min: int
):
    topic, unfolded_bytes = f"bombed-{codec.name.lower()}", 200 * MIB
    bomb = bad_frames.bomb(codec, unfolded_bytes)
    assert unfolded_bytes / len(bomb) > ratio_min
    with unharmed(shared_trial), shared_trial.client() as client:
        client.create_topic(topic, 1)
        (partition,) = client.partition_ids(topic)
        client.produce(partition, [b"before"])
        client.produce_bytes(partition, bomb)
        client.produce(partition, [b"behind"])

        def read() -> None:
            with Consumer(bootstrap=shared_trial.node.bootstrap, auto_offset_reset="earliest") as consumer:
                consumer.assign([(topic, 0)])
                assert [record.value for record in consumer.poll(timeout_ms=5000)] == [b"before"]
                for poll in (consumer.poll, consumer.poll_arrow):
                    with pytest.raises(CorruptBatch, match=f"{topic}-0, in the batch at offset 1"):
                        poll(timeout_ms=5000)
                consumer.seek((topic, 0), 2)
                assert [record.value for record in consumer.poll(timeout_ms=5000)] == [b"behind"]

        assert peak_bytes(read) < GROWTH_MAX_BYTES


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_records_that_are_not_compressed_as_the_batch_says_are_refused(
    shared_trial: Trial, victim: int, codec: Codec
):
    garbage = bad_frames.compressed(codec, b"\xff" * 200)
    wanted = pytest.raises(CorruptBatch, match=f"do not begin as {codec.name.lower()} does")
    with unharmed(shared_trial), shared_trial.client() as client, wanted:
        client.produce_bytes(victim, garbage)


@pytest.mark.parametrize("as_arrow", [False, True], ids=["poll", "poll_arrow"])
def test_a_consumer_goes_on_behind_records_that_do_not_unfold(shared_trial: Trial, as_arrow: bool):
    topic = f"folded-{as_arrow}"
    good = bytes(encode([b"one", b"two", b"three"], timestamps=1, codec=Codec.ZSTD))
    with unharmed(shared_trial), shared_trial.client() as client:
        client.create_topic(topic, 1)
        (partition,) = client.partition_ids(topic)
        client.produce_bytes(partition, bad_frames.compressed(Codec.ZSTD, good[61:-6] + b"spoilt", like=good))
        client.produce(partition, [b"behind"])
        with Consumer(bootstrap=shared_trial.node.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])

            def poll() -> list[bytes]:
                if not as_arrow:
                    return [record.value for record in consumer.poll(timeout_ms=5000)]
                batch = consumer.poll_arrow(timeout_ms=5000)
                return [] if batch is None else batch["value"].to_pylist()

            with pytest.raises(UnreadableBatch) as caught:
                poll()
            error = pickle.loads(pickle.dumps(caught.value))
            assert (error.partition, error.offset, error.next_offset) == ((topic, 0), 0, 3)
            consumer.seek(error.partition, error.next_offset)
            assert poll() == [b"behind"]


def test_fuzzed_frames_never_end_a_process(shared_trial: Trial, victim: int):
    frames = bad_frames.fuzzed(chance("fuzzed"), partition=victim, topic="victim")
    with unharmed(shared_trial), shared_trial.client() as client:
        for number, frame in zip(cases(short=4_000, full=1_000_000), frames, strict=False):
            client.send(frame)
            while (reply := client.next_reply(0)) is not None:
                header, body = reply
                if header.flags & Flag.ERROR:
                    error = decode_body(body, ErrorReply)
                    assert error.code not in OURS, f"frame {number}: {error}"
            if number % 500 == 499:
                shared_trial.node.pid_of("net")  # it must live all the while


def test_garbage_on_the_port_does_no_harm(shared_trial: Trial):
    rng = chance("garbage")
    with unharmed(shared_trial):
        for number in cases(short=200, full=10_000):
            with ZmtpPeer(shared_trial.node.port, handshake=number % 2 == 1) as peer:
                peer.send(rng.randbytes(rng.choice((1, 9, 10, 64, 65, 1000, 100_000))))
