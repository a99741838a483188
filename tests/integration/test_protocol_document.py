"""What docs/PROTOCOL.md says is what a real node does, as seen by a client that shares no code with ringlog."""

from __future__ import annotations

import ast
import struct
import time
from pathlib import Path

import pytest

from ringlog.node.embedded import embedded
from tests.support import protocol_client as wire
from tests.support.markdown import DOCS, tables
from tests.support.protocol_client import ProtocolClient, WireError, make_batch, read_batches
from tests.support.twins.murmur2 import murmur2


@pytest.fixture(scope="module")
def node():
    with embedded(shards=2) as running:
        yield running


@pytest.fixture
def client(node):
    made = ProtocolClient(node.info.endpoints[0])
    yield made
    made.close()


@pytest.fixture
def partition(client, request):
    """The id of the only partition of a topic of the test's own."""
    topic, _version = client.ask(wire.CREATE_TOPIC, [request.node.name[:150].replace("[", "-").strip("]"), 1])
    return topic[3][0][1]


def number_of(code: str) -> int:
    """An error's number, from the document."""
    text = (DOCS / "PROTOCOL.md").read_text(encoding="utf-8")
    return next(int(row[0]) for row in tables(text, "Errors")[1] if row[1] == code)


def bound(name: str) -> int:
    """A bound, from the document."""
    text = (DOCS / "PROTOCOL.md").read_text(encoding="utf-8")
    return next(int(row[1]) for row in tables(text, "Bounds")[0] if row[0] == name)


def test_the_client_uses_nothing_of_ringlog():
    tree = ast.parse(Path(wire.__file__).read_text(encoding="utf-8"))
    froms = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert not [name for name in froms + names if name.startswith("ringlog") or name == "msgspec"]


def test_records_that_are_produced_are_fetched(client, partition):
    base, append_time, start, durability, repeated = client.produce(
        partition, make_batch([b"hello", b"world"], timestamp=1000)
    )
    assert (base, append_time, start, durability, repeated) == (0, -1, 0, 2, 0)
    session, (row,) = client.fetch(0, [[partition, 1, 65536]], via=partition)
    assert session > 0
    assert row[:5] == (partition, 0, 0, 2, 2)
    assert read_batches(row.data, 1) == [(1, b"world")], "the first batch may begin below what was asked for"


def test_the_node_fills_in_base_offset_and_leader_epoch(client, partition):
    client.produce(partition, make_batch([b"first"], timestamp=1))
    client.produce(partition, make_batch([b"second"], timestamp=2))
    _, (row,) = client.fetch(0, [[partition, 1, 1]], via=partition)
    assert struct.unpack_from(">q", row.data) == (1,)
    assert struct.unpack_from(">i", row.data, 12) == (0,)


def test_append_time_is_filled_in_under_a_new_crc(client):
    topic, _ = client.ask(wire.CREATE_TOPIC, ["timed", 1, 1, {"message.timestamp.type": "LogAppendTime"}])
    partition = topic[3][0][1]
    _, append_time, *_ = client.produce(partition, make_batch([b"now"], timestamp=1))
    assert abs(append_time - time.time() * 1000) < 60_000
    _, (row,) = client.fetch(0, [[partition, 0, 1000]], via=partition)
    assert struct.unpack_from(">h", row.data, 21)[0] & 8
    assert struct.unpack_from(">q", row.data, 35) == (append_time,)
    assert read_batches(row.data, 0) == [(0, b"now")]


def test_a_long_poll_is_answered_when_records_come(client, node, partition):
    session, rows = client.fetch(0, [[partition, 0, 65536]], via=partition)
    assert rows == []
    waiting = client.send(wire.FETCH, wire.pack([session, 15_000, 1, 1 << 20, [], []]), partition=partition)
    assert not client.socket.poll(100)
    other = ProtocolClient(node.info.endpoints[0])
    began = time.monotonic()
    other.produce(partition, make_batch([b"at last"], timestamp=1))
    _, (row,) = client.read_fetch(client.receive(waiting))
    assert time.monotonic() - began < 10
    assert read_batches(row.data, 0) == [(0, b"at last")]
    other.close()


def test_a_poll_without_news_ends_after_its_wait(client, partition):
    began = time.monotonic()
    _, rows = client.fetch(0, [[partition, 0, 65536]], via=partition, wait_ms=200)
    assert rows == []
    assert 0.15 < time.monotonic() - began < 10


def test_a_session_reads_from_the_old_offset_until_it_is_told_a_new_one(client, partition):
    client.produce(partition, make_batch([b"a"], timestamp=1))
    session, (first,) = client.fetch(0, [[partition, 0, 65536]], via=partition)
    _, (again,) = client.fetch(session, [], via=partition)
    assert again == first
    _, nothing = client.fetch(session, [[partition, first.next_offset, 65536]], via=partition)
    assert nothing == []


def test_a_session_forgets_what_it_is_told_to_forget(client, partition):
    client.produce(partition, make_batch([b"a"], timestamp=1))
    session, _ = client.fetch(0, [[partition, 0, 65536]], via=partition)
    assert client.fetch(session, [], via=partition, forget=(partition,)) == (session, [])


def test_a_newer_fetch_of_a_session_ends_the_one_that_waits(client, partition):
    session, _ = client.fetch(0, [[partition, 0, 65536]], via=partition)
    body = wire.pack([session, 15_000, 1, 1 << 20, [], []])
    older = client.send(wire.FETCH, body, partition=partition)
    client.send(wire.FETCH, body, partition=partition)
    assert client.read_fetch(client.receive(older)) == (session, [])


def test_an_unknown_session_is_refused(client, partition):
    with pytest.raises(WireError) as refused:
        client.fetch(4_000_000_000, [[partition, 0, 1]], via=partition)
    assert (refused.value.code, refused.value.retriable) == ("FETCH_SESSION_LOST", True)


def test_a_session_belongs_to_its_connection(client, node, partition):
    session, _ = client.fetch(0, [[partition, 0, 65536]], via=partition)
    other = ProtocolClient(node.info.endpoints[0])
    with pytest.raises(WireError, match="FETCH_SESSION_LOST"):
        other.fetch(session, [], via=partition)
    other.close()


def test_rows_tell_errors_by_number(client, partition):
    _, (row,) = client.fetch(0, [[partition, 99, 1000]], via=partition)
    assert row == (partition, number_of("OFFSET_OUT_OF_RANGE"), 0, 0, -1, b"")
    _, (row,) = client.fetch(0, [[4_000_000_000, 0, 1000]], via=partition)
    assert row == (4_000_000_000, number_of("STALE_METADATA"), -1, -1, -1, b"")


def test_offsets_are_found_by_end_start_and_time(client, partition):
    for timestamp in (1000, 2000):
        client.produce(partition, make_batch([b"a", b"b"], timestamp=timestamp))
    queries = [[partition, when] for when in (-1, -2, 1500, 9000)]
    (found,) = client.ask(wire.LIST_OFFSETS, [queries], partition=partition)
    assert found == [
        [partition, 0, 4, -1],
        [partition, 0, 0, -1],
        [partition, 0, 2, 2000],
        [partition, 0, -1, -1],
    ]


def test_a_partition_is_described(client, partition):
    batch = make_batch([b"a"], timestamp=1)
    client.produce(partition, batch)
    ((good, bad),) = client.ask(wire.DESCRIBE_PARTITIONS, [[partition, 4_000_000]], partition=partition)
    assert good == [partition, 0, 0, 1, 1, len(batch), 1, "open"]
    assert bad == [4_000_000, number_of("STALE_METADATA"), -1, -1, -1, 0, 0, "closed"]


def test_metadata_says_where_everything_is(client, node):
    client.ask(wire.CREATE_TOPIC, ["wide", 4])
    reply = client.ask(wire.METADATA, [["wide", "no-such"]])
    cluster, node_id, version, endpoints, host, frame_max, topics, *of_a_cluster = reply
    assert of_a_cluster == [{}, [], -1, []], "defaults, brokers, controller, unheard"
    assert cluster and node_id == 1 and version > 0 and frame_max == bound("FRAME_BYTES_MAX")
    assert endpoints == node.info.endpoints
    assert host.count(":") == 2
    wide, missing = topics
    assert [index for index, *_ in wide[3]] == [0, 1, 2, 3]
    assert {lane for _, _, lane, *_ in wide[3]} == {0, 1}
    assert all(rest == [1, 0, [], [], [], [], [], -1] for _, _, _, *rest in wide[3])
    assert missing == ["no-such", "UNKNOWN_TOPIC", -1, [], {}]


def test_the_host_id_is_made_as_the_document_says(client):
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    spaces = [str(Path("/proc/self/ns", name).stat().st_ino) for name in ("mnt", "net")]
    assert client.ask(wire.METADATA, [[]])[4] == ":".join([boot, *spaces])


def test_ipc_is_spoken_as_tcp_is(node):
    near = ProtocolClient(next(e for e in node.info.endpoints if e.startswith("ipc://")))
    assert near.ask(wire.METADATA, [[]])[6] == []
    near.close()


def test_a_topic_is_created_by_metadata_that_asks_for_it(client):
    (_, partition, *_), *_ = client.partitions("wished-for", create=True)
    assert client.produce(partition, make_batch([b"x"], timestamp=1))[0] == 0


def test_a_topic_is_altered_grown_and_deleted(client):
    client.ask(wire.CREATE_TOPIC, ["short-lived", 1])
    altered, version = client.ask(wire.ALTER_TOPIC, ["short-lived", {"segment.ms": "60000"}])
    assert altered[4] == {"segment.ms": "60000"}
    assert client.ask(wire.ALTER_TOPIC, ["short-lived", {"segment.ms": None}])[0][4] == {}
    grown, later = client.ask(wire.ADD_PARTITIONS, ["short-lived", 3])
    assert len(grown[3]) == 3 and later > version
    assert client.ask(wire.DELETE_TOPIC, ["short-lived"])[0][3] == []
    assert client.ask(wire.METADATA, [["short-lived"]])[6][0][1] == "UNKNOWN_TOPIC"


def test_fields_that_are_not_known_yet_are_skipped(client):
    assert client.ask(wire.METADATA, [[], False, "of a later version", 7])[6] == []


@pytest.mark.parametrize(
    ("api", "body", "code", "retriable"),
    [
        (77, wire.pack([]), "UNSUPPORTED_VERSION", False),
        (wire.METADATA, wire.pack("no array"), "CORRUPT_FRAME", False),
        (wire.METADATA, b"", "CORRUPT_FRAME", False),
        (wire.CREATE_TOPIC, wire.pack([]), "CORRUPT_FRAME", False),
        (wire.CREATE_TOPIC, wire.pack(["not a name"]), "INVALID_REQUEST", False),
        (wire.CREATE_TOPIC, wire.pack(["t", 1, 3]), "INVALID_REQUEST", False),
        (wire.CREATE_TOPIC, wire.pack(["t", 1, 1, {"flusch": "os"}]), "INVALID_REQUEST", False),
        (wire.DELETE_TOPIC, wire.pack(["no-such"]), "UNKNOWN_TOPIC", False),
        (wire.PRODUCE, make_batch([b"x"], timestamp=1), "STALE_METADATA", True),
    ],
)
def test_a_refusal_is_typed(client, api, body, code, retriable):
    with pytest.raises(WireError) as refused:
        client.receive(client.send(api, body, flags=1 if api == wire.PRODUCE else 0))
    assert (refused.value.code, refused.value.retriable) == (code, retriable)
    assert refused.value.message


def test_a_topic_that_is_there_is_not_created_again(client):
    client.ask(wire.CREATE_TOPIC, ["twice", 1])
    with pytest.raises(WireError, match="TOPIC_EXISTS"):
        client.ask(wire.CREATE_TOPIC, ["twice", 1])


def test_bad_batches_are_refused(client, partition):
    good = make_batch([b"x"], timestamp=1)
    with pytest.raises(WireError, match="CORRUPT_BATCH"):
        client.produce(partition, good[:-1] + b"\x01")
    with pytest.raises(WireError, match="CORRUPT_BATCH"):
        client.produce(partition, b"")
    with pytest.raises(WireError, match="BATCH_TOO_LARGE"):
        client.ask(wire.ALTER_TOPIC, [_topic_of(client, partition), {"max.message.bytes": "100"}])
        client.produce(partition, make_batch([b"x" * 100], timestamp=1))


def _topic_of(client, partition: int) -> str:
    topics = client.ask(wire.METADATA, [])[6]
    return next(name for name, _, _, partitions, _ in topics if partition in [p[1] for p in partitions])


def test_an_idempotent_batch_is_recognised_and_a_gap_refused(client, partition):
    producer = tuple(client.ask(wire.INIT_PRODUCER, []))
    batch = make_batch([b"a", b"b"], timestamp=1, producer=producer, sequence=0)
    assert client.produce(partition, batch)[0::4] == (0, 0)
    assert client.produce(partition, batch)[0::4] == (0, 1)
    with pytest.raises(WireError) as refused:
        client.produce(partition, make_batch([b"d"], timestamp=1, producer=producer, sequence=3))
    assert (refused.value.code, refused.value.retriable) == ("OUT_OF_ORDER_SEQUENCE", False)
    next_one = make_batch([b"c"], timestamp=1, producer=producer, sequence=2)
    assert client.produce(partition, next_one)[0] == 2
    newer = make_batch([b"e"], timestamp=1, producer=(producer[0], 1), sequence=0)
    assert client.produce(partition, newer)[0] == 3
    with pytest.raises(WireError, match="PRODUCER_FENCED"):
        client.produce(partition, next_one)


def test_producer_ids_are_given_once(client):
    ids = {client.ask(wire.INIT_PRODUCER, [])[0] for _ in range(10)}
    assert len(ids) == 10


def test_acks_0_is_never_answered(client, partition):
    client.send(wire.PRODUCE, make_batch([b"quiet"], timestamp=1), partition=partition, flags=0)
    client.send(wire.PRODUCE, b"not a batch", partition=partition, flags=0)
    assert client.produce(partition, make_batch([b"loud"], timestamp=1))[0] == 1
    assert not client.socket.poll(100)


def test_a_frame_with_a_bad_header_is_answered_as_far_as_it_can_be(client):
    for frame, correlation, code in (
        (b"short", 0, "CORRUPT_FRAME"),
        (wire.HEADER.pack(1, 3, 0, 0, 71, 0, 0, 9), 71, "CORRUPT_FRAME"),
        (wire.HEADER.pack(2, 3, 0, 0, 72, 0, 0, 0), 72, "UNSUPPORTED_VERSION"),
    ):
        client.socket.send(frame)
        with pytest.raises(WireError, match=code):
            client.receive(correlation)


def test_fetches_are_held_while_too_much_is_not_received_and_go_on_when_it_is(client, partition):
    batch = make_batch([b"x" * (256 * 1024)], timestamp=1)
    for _ in range(64):
        client.produce(partition, batch)
    honest, client.received = client.received, 0
    body = wire.pack([0, 0, 1, 16 << 20, [[partition, 0, 16 << 20]], []])
    for _ in range(4):
        reply = client.receive(client.send(wire.FETCH, body, partition=partition))
        assert len(reply) > 15 << 20
        honest += 32 + len(reply)
        client.received = 0
    held = client.send(wire.FETCH, body, partition=partition)
    assert not client.socket.poll(500), "64 MiB are on their way, as far as the node knows"
    client.received = honest
    client.ask(wire.METADATA, [[]])
    client.send(wire.METADATA, wire.pack([[]]))
    assert len(client.receive(held)) > 15 << 20


def test_a_group_is_joined_committed_for_and_left(client):
    created, _version = client.ask(wire.CREATE_TOPIC, ["shared", 2])
    assert len(created[3]) == 2
    index = (murmur2(b"team") & 0x7FFFFFFF) % bound("OFFSETS_PARTITIONS")
    home = client.partitions("__consumer_offsets", create=True)[index][1]

    def ask(api, body):
        until = time.monotonic() + 10
        while True:
            try:
                return client.ask(api, body, partition=home)
            except WireError as error:
                assert error.retriable and time.monotonic() < until, error
                time.sleep(0.05)

    epoch, assigned = ask(10, ["team", "me", 0, [], 0, ["shared"]])
    assert assigned == [["shared", [0, 1]]]
    assert ask(10, ["team", "me", epoch, assigned, 0]) == [epoch, None]
    assert ask(11, ["team", "me", epoch, 1, [["shared", 0, 7, "note"], ["shared", 1, 8]]]) == [[0, 0]]
    ((first, second),) = ask(12, ["team", [["shared", [0, 1]]]])
    assert (first[:4], second[:3]) == (["shared", 0, 7, "note"], ["shared", 1, 8])
    with pytest.raises(WireError) as fenced:
        client.ask(10, ["team", "nobody", 3, []], partition=home)
    assert fenced.value.code == "MEMBER_FENCED"
    (state,) = [row[1] for row in ask(13, [])[0] if row[0] == "team"]
    assert state == "stable"
    assert ask(14, ["team"])[4][0][0] == "me"
    with pytest.raises(WireError) as busy:
        client.ask(15, ["team", [["shared", 0, 1]]], partition=home)
    assert busy.value.code == "GROUP_NOT_EMPTY"
    assert ask(10, ["team", "me", -1])[0] == -1
    assert ask(15, ["team", [["shared", 0, 1]]]) == [[0]]
    assert ask(16, ["team"]) == [2]
