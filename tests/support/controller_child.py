"""A controller process of a cluster, alone: takes lines on stdin, says on stdout what became of them, and who leads.

python -m tests.support.controller_child DATA_DIR NODE_ID 1=tcp://…,2=tcp://…,3=tcp://…
"""

from __future__ import annotations

import json
import os
import sys
import time

import msgspec

from ringlog.consensus.messages import Voter
from ringlog.consensus.timing import Timing
from ringlog.errors import RinglogError
from ringlog.net.cluster_messages import BrokerHeartbeatRequest, RegisterBrokerReply, RegisterBrokerRequest
from ringlog.net.messages import CreateTopicRequest
from ringlog.node.cluster_controller import ClusterController
from ringlog.node.quorum_store import QuorumStore

BEAT_S = 0.2
TIMING = Timing(election_ms=700, beat_ms=100)
"""Longer than a real one's: the tests share a busy machine."""


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


class Child:
    """One life."""

    def __init__(self, data_dir: str, node_id: int, endpoints: dict[int, str]) -> None:
        store = QuorumStore(data_dir, node_id, tuple(Voter(peer, "") for peer in sorted(endpoints)))
        self.controller = ClusterController(
            store, endpoints, now_ms=lambda: time.monotonic() * 1000, timing=TIMING
        )
        self.controller.quorum.file_bytes_max = 20_000  # snapshots happen
        self.node_id, self.disk_id = node_id, store.me.disk_id
        self.broker_epoch: int | None = None
        self.life = f"{os.getpid()}"
        self.beat_at_s = 0.0
        self.said: tuple[int | None, int] = (None, 0)
        os.set_blocking(0, False)
        self.line = b""

    def run(self) -> None:
        while True:
            self.controller.run(0.02)
            self.controller.published.clear()
            raft = self.controller.quorum.raft
            if self.said != (raft.leader_id, raft.epoch):
                self.said = (raft.leader_id, raft.epoch)
                say(leader=raft.leader_id, epoch=raft.epoch)
            if time.monotonic() >= self.beat_at_s:
                self.beat_at_s = time.monotonic() + BEAT_S
                self.beat()
            for line in self.lines():
                self.command(*line.split())

    def lines(self) -> list[str]:
        try:
            data = os.read(0, 65536)
        except BlockingIOError:
            return []
        if not data:
            sys.exit(0)
        *whole, self.line = (self.line + data).split(b"\n")
        return [line.decode() for line in whole]

    def command(self, word: str, *given: str) -> None:
        if word == "create":
            name, factor = given[0], int(given[1])
            self.controller.ask(CreateTopicRequest(name, 2, factor), lambda reply: self.created(name, reply))
        elif word == "dump":
            image = self.controller.image
            brokers = [[b.node_id, b.fenced] for b in image.brokers.values()]
            voters = [str(voter) for voter in self.controller.quorum.raft.voters.latest]
            say(
                dump=sorted(image.topics),
                version=image.version,
                brokers=sorted(brokers),
                cluster=image.cluster_id,
                voters=voters,
                refused=self.controller._links.refused,
            )

    def created(self, name: str, reply: msgspec.Struct | RinglogError) -> None:
        if isinstance(reply, RinglogError):
            say(failed=name, code=reply.code, retriable=reply.retriable)
        else:
            say(created=name)

    def beat(self) -> None:
        def answered(reply: msgspec.Struct | RinglogError) -> None:
            if isinstance(reply, RegisterBrokerReply):
                self.broker_epoch = reply.broker_epoch
            elif isinstance(reply, RinglogError) and reply.code == "STALE_BROKER":
                self.broker_epoch = None

        if self.broker_epoch is None:
            register = RegisterBrokerRequest(self.node_id, self.life, self.disk_id, [], "", shards=2)
            self.controller.ask(register, answered)
        else:
            version = self.controller.image.version
            self.controller.ask(BrokerHeartbeatRequest(self.node_id, self.broker_epoch, version), answered)


if __name__ == "__main__":
    given = dict(pair.split("=", 1) for pair in sys.argv[3].split(","))
    Child(
        sys.argv[1], int(sys.argv[2]), {int(node_id): endpoint for node_id, endpoint in given.items()}
    ).run()
