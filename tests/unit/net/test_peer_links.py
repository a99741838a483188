"""Links between controllers: who is of another cluster is not listened to, and a broken connection is seen at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ringlog.errors import NodeFailed
from ringlog.net.peer_links import PeerLinks
from tests.support.node import free_port, wait_for
from tests.support.patience import stretched

WITHIN_S = 10.0


@pytest.fixture
def endpoints() -> dict[int, str]:
    return {node_id: f"tcp://127.0.0.1:{free_port()}" for node_id in (1, 2)}


@pytest.fixture
def pair(endpoints: dict[int, str]) -> Iterator[tuple[PeerLinks, PeerLinks]]:
    first, second = PeerLinks(1, endpoints), PeerLinks(2, endpoints)
    yield first, second
    for links in (first, second):
        links.close()  # a test may have closed it already


def deliver(source: PeerLinks, target: PeerLinks) -> bytes:
    """What arrives of something that is said until it is heard."""

    def heard() -> bytes:
        source.send(target.node_id, "raft", b"hello")
        source.wait(0.0)
        target.wait(0.01)
        return b"".join(message.body for message in target.receive())

    return wait_for("a message", heard, stretched(WITHIN_S))


def test_messages_arrive(pair: tuple[PeerLinks, PeerLinks]):
    assert deliver(*pair).startswith(b"hello")


def test_a_process_that_died_is_missed_at_once_and_met_again(
    pair: tuple[PeerLinks, PeerLinks], endpoints: dict[int, str]
):
    first, second = pair
    deliver(first, second)
    assert first.lost == set()
    second.close()

    def sees(lost: set[int]) -> bool:
        first.wait(0.01)
        return first.lost == lost

    wait_for("the broken connection", lambda: sees({2}), stretched(WITHIN_S))
    # The event may come a moment before the socket lets go of the connection.
    wait_for("nobody to send to", lambda: not first.send(2, "raft", b"to nobody"), stretched(WITHIN_S))
    again = PeerLinks(2, endpoints)
    try:
        wait_for("the new one", lambda: sees(set()), stretched(WITHIN_S))
        assert deliver(first, again).endswith(b"hello")
    finally:
        again.close()


def test_nodes_of_another_cluster_are_not_heard(pair: tuple[PeerLinks, PeerLinks]):
    first, second = pair
    first.cluster_id, second.cluster_id = "ours", "theirs"

    def refused() -> bool:
        first.send(2, "raft", b"hello")
        first.wait(0.0)
        second.wait(0.01)
        assert second.receive() == []
        return second.refused > 0

    wait_for("a stranger", refused, stretched(WITHIN_S))
    assert second.strangers == {1: "ours"} and not second.heard


def test_an_address_that_is_taken_is_refused_with_what_to_do(pair, endpoints: dict[int, str]):
    with pytest.raises(NodeFailed, match="give another one with --cluster"):
        PeerLinks(1, endpoints)
