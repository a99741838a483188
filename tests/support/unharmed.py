"""What bad input must not do to a node: no process dies, no good client waits in vain, no memory goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ringlog.limits import MIB
from ringlog.net.framing import Flag
from ringlog.net.messages import ErrorReply, decode_body
from tests.support.patience import stretched
from tests.support.raw_client import RawClient
from tests.support.trial import TOPIC, Trial

GROWTH_MAX_BYTES = 64 * MIB
OURS = {"INTERNAL", "INVARIANT_BROKEN"}
"""Codes that say: a bug of ours. Input of others must never lead to them."""


@contextmanager
def unharmed(trial: Trial) -> Iterator[None]:
    """What happens inside must cost no process its life, no client its answers, and no memory to speak of."""
    node = trial.node
    with trial.client() as client:
        (partition, *_) = client.partition_ids(TOPIC)
        client.produce(partition, [b"before"])
        processes, before = node.processes(), node.resident_bytes()
        yield
        assert client.produce(partition, [b"after"]).base_offset > 0
        assert node.processes() == processes, f"a part of the node died\n{node.log_tail()}"

        until = time.monotonic() + stretched(8)
        while True:  # what a connection kept is freed shortly after it was cut
            after = node.resident_bytes()
            grown = {pid: after[pid] - before[pid] for pid in before}
            if max(grown.values()) < GROWTH_MAX_BYTES:
                break
            assert time.monotonic() < until, (
                f"bytes of growth by pid: {grown}, of {processes}\n{node.log_tail()}"
            )
            time.sleep(0.05)


def answer(client: RawClient, frame: bytes) -> ErrorReply:
    """The error that a frame is answered with."""
    client.send(frame)
    reply = client.next_reply(timeout_s=stretched(4))
    assert reply is not None, "no answer"
    header, body = reply
    assert header.flags & Flag.ERROR, "taken as if nothing were wrong with it"
    return decode_body(body, ErrorReply)
