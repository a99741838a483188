"""Large answers between nodes of one host go through memory that the asking node shares, each to where it may lie."""

from __future__ import annotations

import mmap
import os
import struct
from functools import partial

import pytest

from ringlog.client.near_memory import landing_memory
from ringlog.errors import CorruptFrame, StaleBroker
from ringlog.limits import BLOCK_BYTES, REPLICA_LANDED_BYTES_MIN, REPLICA_PLACE_BYTES, REPLICA_PLACES
from ringlog.net.framing import Flag
from ringlog.net.host import host_id
from ringlog.net.peer_agent import share_landing
from ringlog.net.peer_near import HEAD_BYTES, KEY_BYTES, MEMORY_BYTES, Landing, Offer, Places, places_of
from ringlog.net.peer_wire import Me, decode_hello, error_frame, hello_frame
from ringlog.net.shared_memory import map_shared
from ringlog.shard.commands import LENT, NodeApi, pack_lent, place, unpack_u64
from tests.support.peer_world import (
    CLUSTER,
    FETCH,
    HELD,
    HELLO,
    HOST,
    ME,
    OTHER,
    SHARD_0,
    PeerWorld,
    fetch_of,
    frame,
)

LARGE = REPLICA_LANDED_BYTES_MIN
NEAR_REPLY = Flag.REPLY | Flag.NEAR


@pytest.fixture
def peer():
    world = PeerWorld(region_bytes=REPLICA_PLACE_BYTES + LARGE)
    world.register()
    yield world
    world.close()


# -- as the follower's node: it shares memory, and takes answers from there -----------------------------------------


def offer_of(peer: PeerWorld, node: int = OTHER) -> Offer:
    """What a call of this node says that it shares."""
    peer.service.connected(node)
    peer.service.greet()
    said = [decode_hello(sent.body) for to, sent in peer.take_called() if (to, sent.api) == (node, HELLO)]
    assert said[-1].shares is not None
    return said[-1].shares


def taken(peer: PeerWorld, node: int = OTHER) -> memoryview:
    """The other node lets us in and takes our memory: what it sees."""
    offer = offer_of(peer, node)
    welcome = hello_frame(Me(CLUSTER, node, peer.epochs[node]), ME, Flag.REPLY, shares=offer)
    peer.service.take_answer(node, memoryview(welcome))
    return memoryview(peer.memories[offer.process, offer.descriptor])


def asked(peer: PeerWorld, **ask: int) -> tuple[int, bytes]:
    """The place that a fetch grants, -1 for none, and the fetch itself."""
    peer.ask(**ask)
    ((_, sent),) = peer.take_called()
    if not sent.flags & Flag.NEAR:
        return -1, sent.body
    return struct.unpack_from("<Q", sent.body)[0], sent.body[8:]


def named(position: int, nbytes: int, memory: int = 0) -> bytes:
    """What an answer says of the first memory that was shared, or of a later one."""
    return struct.pack("<QI4s", position, nbytes, PeerWorld.key_of(memory)[:4])


def landed(position: int, nbytes: int) -> bytes:
    return frame(FETCH, named(position, nbytes), correlation=1, flags=NEAR_REPLY)


def test_a_fetch_grants_a_place_and_an_answer_is_taken_from_there(peer):
    memory = taken(peer)
    position, fetch = asked(peer)
    assert fetch == b"want" and BLOCK_BYTES <= position <= len(memory) - REPLICA_PLACE_BYTES
    memory[position : position + 7] = b"batches"
    peer.answer(landed(position, 7))
    (got,) = peer.received()
    assert (got.api, got.flags, got.correlation, got.place) == (FETCH, Flag.REPLY, 1, (OTHER, 0))
    assert got.body == b"batches"
    assert peer.stats.counts["near_bytes_in"] == 7


def test_a_place_that_was_used_is_granted_again_first(peer):
    taken(peer)
    position, _ = asked(peer)
    peer.answer(landed(position, 0))
    assert asked(peer)[0] == position


def test_what_is_held_is_reported_without_a_place(peer):
    taken(peer)
    assert asked(peer, api=HELD)[0] == -1


def test_fetches_go_without_a_place_while_all_are_granted(peer):
    taken(peer)
    given = [asked(peer)[0] for _ in range(REPLICA_PLACES + 1)]
    assert given.pop() == -1
    assert len(set(given)) == REPLICA_PLACES and -1 not in given
    assert min(abs(one - other) for one in given for other in given if one != other) == REPLICA_PLACE_BYTES


def test_a_fetch_that_could_not_leave_grants_nothing(peer):
    taken(peer)
    peer.unreachable.add(OTHER)
    for _ in range(3 * REPLICA_PLACES):
        peer.ask()
    peer.unreachable.clear()
    assert asked(peer)[0] > 0


@pytest.mark.parametrize("other_key", [False, True], ids=["it took none", "it took other memory"])
def test_a_node_that_took_no_memory_is_granted_nothing(peer, other_key):
    offer = offer_of(peer)
    shares = Offer(offer.host, offer.process, offer.descriptor, b"?" * KEY_BYTES) if other_key else None
    welcome = hello_frame(Me(CLUSTER, OTHER, peer.epochs[OTHER]), ME, Flag.REPLY, shares=shares)
    peer.service.take_answer(OTHER, memoryview(welcome))
    assert asked(peer) == (-1, b"want")


def test_each_call_has_memory_of_its_own_and_says_the_same_until_it_is_let_in(peer):
    first = offer_of(peer)
    peer.at(1_000)
    peer.service.greet()
    assert [decode_hello(sent.body).shares for node, sent in peer.take_called() if node == OTHER] == [first]
    assert offer_of(peer, node=3) != first


@pytest.mark.parametrize("how", ["lost", "stranger"])
def test_after_a_call_is_over_its_memory_is_never_used_again(peer, how):
    """Who stood still may write to the old one yet."""
    memory = taken(peer)
    position, _ = asked(peer)
    if how == "lost":
        peer.service.disconnected(OTHER)
    else:
        peer.answer(error_frame(HELLO, StaleBroker("say hello")))
    assert [got.flags for got in peer.received()] == [Flag.REPLY | Flag.ERROR]
    anew = taken(peer)
    assert asked(peer)[0] == position
    memory[position : position + 4] = b"late"
    peer.answer(landed(position, 4))
    assert peer.received() == [] and bytes(anew[position : position + 4]) == bytes(4)
    assert peer.stats.counts["refused"] == 1
    peer.answer(frame(FETCH, named(position, 4, memory=1), correlation=1, flags=NEAR_REPLY))
    assert [got.body for got in peer.received()] == [bytes(4)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(15),
        bytes(17),
        named(0, 4),
        named(2**64 - 1, 4),
        named(BLOCK_BYTES + 1, 4),
        named(BLOCK_BYTES, 4, memory=1),
    ],
)
def test_an_answer_from_where_none_may_lie_reaches_no_shard(peer, body):
    taken(peer)
    asked(peer)
    peer.answer(frame(FETCH, body, correlation=1, flags=NEAR_REPLY))
    assert peer.received() == [] and peer.stats.counts["refused"] == 1


@pytest.mark.parametrize("nbytes", [REPLICA_PLACE_BYTES + 1, 2**32 - 1])
def test_an_answer_that_is_larger_than_its_place_reaches_no_shard(peer, nbytes):
    taken(peer)
    position, _ = asked(peer)
    peer.answer(landed(position, nbytes))
    assert peer.received() == [] and peer.stats.counts["refused"] == 1


def test_a_place_has_no_room_for_more_than_its_own_bytes():
    landing = Landing(memoryview(bytearray(MEMORY_BYTES)), Offer(HOST, 1, 2, PeerWorld.key_of(0)))
    landing.is_taken = True
    position = landing.grant()
    assert position is not None
    with pytest.raises(CorruptFrame, match="no place"):
        landing.take(named(position, REPLICA_PLACE_BYTES + 1))
    _, body = landing.take(named(position, REPLICA_PLACE_BYTES))
    assert len(body) == REPLICA_PLACE_BYTES


def test_an_answer_elsewhere_to_a_fetch_that_did_not_leave_reaches_no_shard(peer):
    taken(peer)
    peer.unreachable.add(OTHER)
    peer.ask()
    assert [got.flags for got in peer.received()] == [Flag.REPLY | Flag.ERROR]
    peer.answer(landed(BLOCK_BYTES, 4))
    assert peer.received() == [] and peer.stats.counts["refused"] == 1


def test_an_answer_that_names_a_place_twice_is_taken_once(peer):
    taken(peer)
    position, _ = asked(peer)
    peer.answer(landed(position, 4))
    peer.answer(landed(position, 4))
    assert len(peer.received()) == 1 and peer.stats.counts["refused"] == 1


def test_an_answer_elsewhere_from_a_node_that_was_given_no_place_is_refused(peer):
    peer.welcome()
    peer.answer(landed(BLOCK_BYTES, 4))
    assert peer.received() == [] and peer.stats.counts["refused"] == 1


def test_an_answer_for_a_shard_that_is_being_restarted_frees_its_place(peer):
    taken(peer)
    position, _ = asked(peer)
    body = named(position, 4)
    peer.answer(frame(FETCH, body, correlation=1, session=9, flags=NEAR_REPLY))
    assert asked(peer)[0] == position


# -- as the leader's node: it writes where it was granted -----------------------------------------------------------


def called(peer: PeerWorld, shares: Offer | None = None, who: bytes = b"two") -> Offer | None:
    """The other node calls, sharing memory; what it is told that we took."""
    them = Me(CLUSTER, OTHER, peer.epochs[OTHER])
    peer.call(hello_frame(them, ME, shares=shares), who)
    return decode_hello(peer.take_answered()[-1][1].body).shares


def shared(peer: PeerWorld) -> memoryview:
    offer = peer.landing(77).offer
    assert called(peer, offer) == offer
    return memoryview(peer.memories[offer.process, offer.descriptor])


def grants(peer: PeerWorld, position: int) -> None:
    header = frame(FETCH, struct.pack("<Q", position) + b"want", session=3, flags=Flag.NEAR)
    peer.call(header)


def lends(peer: PeerWorld, nbytes: int) -> bytes:
    """A shard answers with so many bytes of its memory behind a head; what that is."""
    body = pack_lent(5, b"head", [(64, nbytes - 5), (0, 1)])
    peer.shard_sends(0, frame(FETCH, body, session=place(OTHER, 3), flags=Flag.REPLY | LENT))
    return b"head" + bytes(peer.region[64 : 64 + nbytes - 5]) + bytes(peer.region[:1])


def test_a_large_answer_is_put_where_a_fetch_granted_a_place(peer):
    memory = shared(peer)
    grants(peer, BLOCK_BYTES)
    (got,) = peer.received()
    assert (got.flags, got.place, got.body) == (0, (OTHER, 3), b"want")
    whole = lends(peer, LARGE)
    ((who, sent),) = peer.take_answered()
    assert (who, sent.flags, sent.session) == (b"two", NEAR_REPLY, 3)
    assert sent.body == named(BLOCK_BYTES, LARGE)
    assert bytes(memory[BLOCK_BYTES : BLOCK_BYTES + LARGE]) == whole
    assert bytes(memory[BLOCK_BYTES + LARGE :]) == bytes(len(memory) - BLOCK_BYTES - LARGE)
    assert [unpack_u64(memoryview(got.body)) for got in peer.received() if got.api == NodeApi.RELEASE] == [
        (5,)
    ]
    assert peer.stats.counts["near_bytes_out"] == LARGE


@pytest.mark.parametrize("nbytes", [LARGE - 1, REPLICA_PLACE_BYTES + 1], ids=["small", "too large"])
def test_other_answers_go_through_the_socket(peer, nbytes):
    memory = shared(peer)
    grants(peer, BLOCK_BYTES)
    whole = lends(peer, nbytes)
    ((_, sent),) = peer.take_answered()
    assert (sent.flags, sent.body) == (Flag.REPLY, whole)
    assert bytes(memory[BLOCK_BYTES:]) == bytes(len(memory) - BLOCK_BYTES)


def test_a_place_serves_one_answer(peer):
    shared(peer)
    grants(peer, BLOCK_BYTES)
    lends(peer, LARGE)
    whole = lends(peer, LARGE)
    assert [sent.flags for _, sent in peer.take_answered()] == [NEAR_REPLY, Flag.REPLY]
    grants(peer, BLOCK_BYTES)
    assert lends(peer, LARGE) == whole
    assert [sent.flags for _, sent in peer.take_answered()] == [NEAR_REPLY]


def test_what_was_put_somewhere_and_not_told_leaves_the_place_free(peer):
    shared(peer)
    grants(peer, BLOCK_BYTES)
    peer.dead.add(SHARD_0)
    lends(peer, LARGE)
    peer.dead.clear()
    peer.deaf.add(b"two")
    lends(peer, LARGE)
    peer.deaf.clear()
    assert peer.take_answered() == []
    lends(peer, LARGE)
    assert [sent.flags for _, sent in peer.take_answered()] == [NEAR_REPLY]


def test_a_connection_of_another_life_is_granted_nothing_by_the_last_one(peer):
    before = shared(peer)
    grants(peer, BLOCK_BYTES)
    after = shared(peer)
    lends(peer, LARGE)
    assert [sent.flags for _, sent in peer.take_answered()] == [Flag.REPLY]
    for memory in (before, after):
        assert bytes(memory[BLOCK_BYTES:]) == bytes(len(memory) - BLOCK_BYTES)


@pytest.mark.parametrize(
    "position", [0, 1, BLOCK_BYTES + 1, BLOCK_BYTES - 1, 2**63, BLOCK_BYTES + 8 * REPLICA_PLACE_BYTES]
)
def test_a_place_that_is_none_is_refused_and_its_fetch_reaches_no_shard(peer, position):
    shared(peer)
    grants(peer, position)
    assert peer.received() == [] and peer.stats.counts["refused"] == 1
    ((_, told),) = peer.take_answered()
    assert (told.api, told.flags, told.error.code) == (HELLO, Flag.REPLY | Flag.ERROR, "INVALID_REQUEST")


def test_a_place_is_granted_by_nobody_who_shares_nothing(peer):
    called(peer)
    grants(peer, BLOCK_BYTES)
    assert peer.received() == [] and peer.stats.counts["refused"] == 1


def test_a_place_is_granted_once(peer):
    shared(peer)
    grants(peer, BLOCK_BYTES)
    grants(peer, BLOCK_BYTES)
    assert len(peer.received()) == 1 and peer.stats.counts["refused"] == 1


def test_a_fetch_too_short_to_name_a_place_is_refused(peer):
    shared(peer)
    peer.call(frame(FETCH, b"short", session=3, flags=Flag.NEAR))
    assert peer.received() == [] and peer.stats.counts["refused"] == 1


def test_a_fetch_without_a_place_is_as_it_ever_was(peer):
    shared(peer)
    peer.call(fetch_of(3))
    whole = lends(peer, LARGE)
    ((_, sent),) = peer.take_answered()
    assert (sent.flags, sent.body) == (Flag.REPLY, whole)


# -- whose memory it is ---------------------------------------------------------------------------------------------


def wrong_offers(peer: PeerWorld) -> dict[str, Offer]:
    offer = peer.landing(77).offer
    return {
        "another host": Offer("elsewhere", offer.process, offer.descriptor, offer.key),
        "no such memory": Offer(HOST, offer.process, 99, offer.key),
        "another key": Offer(HOST, offer.process, offer.descriptor, b"?" * KEY_BYTES),
        "no key": Offer(HOST, offer.process, offer.descriptor, b""),
        "half a key": Offer(HOST, offer.process, offer.descriptor, offer.key[:8]),
    }


@pytest.mark.parametrize("wrong", ["another host", "no such memory", "another key", "no key", "half a key"])
def test_memory_that_is_not_proven_to_be_the_callers_is_left_alone(peer, wrong):
    offer = wrong_offers(peer)[wrong]
    assert called(peer, offer) is None
    grants(peer, BLOCK_BYTES)
    assert peer.received() == []


def test_memory_that_a_consumer_shares_is_none_of_a_node_whatever_key_is_guessed():
    shared = landing_memory()
    assert shared is not None
    fresh = Offer(host_id(), os.getpid(), shared.descriptor, bytes(KEY_BYTES))
    assert places_of(fresh, host_id(), partial(map_shared, writable=True)) is None


@pytest.mark.parametrize("at", [0, 16, 20], ids=["another purpose", "more places", "larger places"])
def test_memory_of_another_make_is_left_alone(peer, at):
    """A later version may have its places elsewhere."""
    offer = peer.landing(77).offer
    peer.memories[offer.process, offer.descriptor][at] ^= 1
    assert called(peer, offer) is None


@pytest.mark.parametrize("lacks", ["memfd_create", "mmap"])
def test_where_the_system_gives_no_memory_none_is_shared_and_no_descriptor_is_kept(monkeypatch, lacks):
    def none_left(*_):
        raise OSError(24, "Too many open files")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os if lacks == "memfd_create" else mmap, lacks, none_left)
    assert share_landing() is None
    assert os.listdir("/proc/self/fd") == before


def test_memory_that_nobody_has_any_more_keeps_no_descriptor():
    before = os.listdir("/proc/self/fd")
    landing = share_landing()
    assert landing is not None
    theirs = places_of(landing.offer, host_id(), partial(map_shared, writable=True))
    assert theirs is not None and os.listdir("/proc/self/fd") != before
    del landing, theirs
    assert os.listdir("/proc/self/fd") == before


def test_an_earlier_version_shares_nothing_and_is_let_in(peer):
    them = Me(CLUSTER, OTHER, peer.epochs[OTHER])
    assert called(peer, None) is None
    assert places_of(None, HOST, peer.map_memory) is None
    assert decode_hello(them.hello(ME)).shares is None


def test_both_ends_agree_where_places_are():
    memory = memoryview(bytearray(BLOCK_BYTES + REPLICA_PLACES * REPLICA_PLACE_BYTES))
    offer = Offer(HOST, 1, 2, b"k" * KEY_BYTES)
    mine, theirs = Landing(memory, offer), Places(memory, offer)
    mine.is_taken = True
    for number in range(REPLICA_PLACES):
        position = mine.grant()
        assert position is not None
        theirs.granted(memoryview(struct.pack("<Q", position)))
        piece = bytes([number]) * 10
        assert theirs.put([piece, piece], 20) == position
        _, found = mine.take(theirs.landed(position, 20))
        assert bytes(found) == piece * 2
    assert bytes(memory[:HEAD_BYTES]) == mine.offer.head()
