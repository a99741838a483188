"""A bad client in a process of its own: garbage, half-open connections, fuzzed frames, at a bounded rate.

`python -m tests.support.attack --port P --partition N --topic T --seconds S --seed K`
"""

from __future__ import annotations

import argparse
import random
import socket
import time

from tests.support.bad_frames import fuzzed
from tests.support.raw_client import RawClient
from tests.support.zmtp import ZmtpPeer

OPEN_MAX = 50
TICK_S = 0.02


def attack(port: int, partition: int, topic: str, seconds: float, seed: int, per_s: int = 500) -> int:
    """Misbehave for so long; how many times it did."""
    rng = random.Random(seed)
    frames = fuzzed(random.Random(seed), partition, topic)
    done, until = 0, time.monotonic() + seconds
    half_open: list[socket.socket] = []
    with RawClient(f"tcp://127.0.0.1:{port}") as client:
        while time.monotonic() < until:
            tick_ends = time.monotonic() + TICK_S
            for _ in range(int(per_s * TICK_S) - 1):
                client.send(next(frames))
                done += 1
            while client.next_reply(0) is not None:
                continue
            with ZmtpPeer(port, handshake=False) as peer:
                peer.send(rng.randbytes(rng.choice((1, 10, 64, 4096))))
            half_open.append(socket.create_connection(("127.0.0.1", port), timeout=5))
            if len(half_open) > OPEN_MAX:
                half_open.pop(0).close()
            done += 2
            time.sleep(max(0.0, tick_ends - time.monotonic()))
    for one in half_open:
        one.close()
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--partition", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("ready", flush=True)
    print(attack(given.port, given.partition, given.topic, given.seconds, given.seed), flush=True)


if __name__ == "__main__":
    main()
