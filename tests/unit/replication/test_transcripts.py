"""Golden transcripts: whole stories of a replicated partition, each step with what it leaves behind.

A story is a file of commands and their outcomes. `RINGLOG_UPDATE=1` writes the outcomes anew: read the difference
before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringlog.errors import RinglogError
from ringlog.model import NO_LEADER
from ringlog.replication.view import PartitionView
from tests.support.replica_world import PARTITION, Node, answer, apply, fetch

STORIES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


class Story:
    """Three nodes and the commands that move them."""

    def __init__(self) -> None:
        self.nodes = {node: Node(node) for node in (1, 2, 3)}
        self.now_ms = 0
        self.view = PartitionView(PARTITION, NO_LEADER, 0, 0, (1, 2, 3), (1, 2, 3), min_insync=2)
        self.late: dict[str, tuple] = {}

    def run(self, line: str) -> str:
        command, *words = line.split()
        try:
            return getattr(self, f"do_{command}")(*words)
        except RinglogError as error:
            return error.code

    def do_elect(self, node: str, *told: str) -> str:
        """elect NODE [who hears of it…]: the controller makes it the leader of the next epoch."""
        view = self.view
        self.view = view._replace(
            leader=int(node), leader_epoch=view.leader_epoch + 1, partition_epoch=view.partition_epoch + 1
        )
        return self.do_tell(*told)

    def do_isr(self, *nodes: str) -> str:
        """isr NODE…: the controller says who is in sync."""
        isr = tuple(int(node) for node in nodes)
        self.view = self.view._replace(isr=isr, partition_epoch=self.view.partition_epoch + 1)
        return self.do_tell()

    def do_tell(self, *nodes: str) -> str:
        """tell [NODE…]: these, or all, hear what the controller has decided."""
        for node in [int(node) for node in nodes] or self.nodes:
            self.nodes[node].follow(self.view, self.now_ms)
        view = self.view
        return f"epoch {view.leader_epoch}: leader {view.leader}, in sync {','.join(map(str, view.isr))}"

    def do_append(self, node: str, records: str) -> str:
        """append NODE COUNT: a producer's records come to a leader."""
        one = self.nodes[int(node)]
        leader = one.replica.must_lead()
        leader.must_take()
        one.log.append(leader.view.leader_epoch, int(records))
        return self.state(one)

    def do_flush(self, node: str) -> str:
        """flush NODE: all that it has is flushed."""
        one = self.nodes[int(node)]
        one.log.flush()
        if one.replica.leader is not None:
            one.replica.leader.advance(one.log)
        return self.state(one)

    def do_fetch(self, node: str, source: str) -> str:
        """fetch NODE LEADER: one fetch, there and back."""
        one, leader = self.nodes[int(node)], self.nodes[int(source)]
        done = fetch(one, leader, self.now_ms)
        return f"{done}\n{self.state(one)}\n{self.state(leader)}"

    def do_ask(self, name: str, node: str, source: str) -> str:
        """ask NAME NODE LEADER: the leader answers, and the answer is under way."""
        one, leader = self.nodes[int(node)], self.nodes[int(source)]
        self.late[name] = (one, *answer(leader, one, one.want(), self.now_ms))
        return self.state(leader)

    def do_arrive(self, name: str) -> str:
        """arrive NAME: that answer arrives."""
        one, part, batches = self.late.pop(name)
        return f"{apply(one, part, batches)}\n{self.state(one)}"

    def do_pass(self, ms: str) -> str:
        """pass MS: time goes by; what leaders propose now."""
        self.now_ms += int(ms)
        lines = []
        for one in self.nodes.values():
            leader = one.replica.leader
            proposal = leader.propose(one.log, 1_000, self.now_ms) if leader is not None else None
            if proposal is not None:
                lines.append(
                    f"{one.node} proposes {','.join(map(str, proposal.nodes))} at {proposal.partition_epoch}"
                )
        return "\n".join(lines) or "nobody proposes anything"

    def do_crash(self, node: str) -> str:
        """crash NODE: power is lost; what was not flushed is gone, and it comes back with another node epoch."""
        old = self.nodes[int(node)]
        old.log.truncate(old.log.held_offset)
        new = self.nodes[old.node] = Node(old.node, old.log)
        new.node_epoch = old.node_epoch + 1
        return self.state(new)

    def state(self, one: Node) -> str:
        log, replica = one.log, one.replica
        role = "leader" if replica.leader else "follower" if replica.follower else "no role"
        epochs = " ".join(f"{start.epoch}@{start.offset}" for start in log.epochs.starts) or "none"
        return (
            f"{one.node}: {role}, log {log.start_offset}..{log.end_offset}, held {log.held_offset}, "
            f"epochs {epochs}, committed {replica.high_watermark}"
        )


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_ends_as_it_is_told(path):
    told = path.read_text(encoding="utf-8")
    story, lines = Story(), []
    for line in told.splitlines():
        if line.startswith("> "):
            lines += [line, *(f"    {out}" for out in story.run(line[2:]).splitlines())]
        elif not line.startswith("    "):
            lines.append(line)
    happened = "\n".join(lines) + "\n"
    if os.environ.get("RINGLOG_UPDATE"):
        path.write_text(happened, encoding="utf-8")
    assert happened == told


def test_there_are_stories():
    assert len(STORIES) >= 5
