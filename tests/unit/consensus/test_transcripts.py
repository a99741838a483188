"""Transcripts of the quorum's protocol: what three voters say to each other, line by line, as golden files.

A line that begins with `>` is a command, the lines below it are what came of it. `RINGLOG_GOLDEN=write` writes them.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from ringlog.consensus.messages import HardState, Message, Snapshot, Voter
from ringlog.consensus.raft import Raft
from ringlog.consensus.saving import Outgoing, Restored
from ringlog.consensus.timing import Timing
from ringlog.errors import RinglogError

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "consensus"
TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))
TIMING = Timing(election_ms=100, beat_ms=20)


class Conversation:
    """Three voters with perfect disks, and a network that delivers when it is told to."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.out: list[str] = []
        voters = tuple(Voter(node_id, "") for node_id in (1, 2, 3))
        blank = Restored(HardState(), Snapshot(0, 0, voters, b""), ())
        self.voters = {
            node_id: Raft(Voter(node_id, f"d{node_id}"), blank, timing=TIMING, now_ms=0)
            for node_id in (1, 2, 3)
        }
        self.wire: list[tuple[int, Outgoing]] = []

    def run(self, command: str) -> list[str]:
        self.out = []
        word, *given = command.split()
        try:
            getattr(self, f"do_{word}")(*given)
        except RinglogError as error:
            self.out.append(f"  refused: {error.code}")
        return self.out

    def do_wait(self, ms: str, *nodes: str) -> None:
        """Time passes; these voters (all, if none is named) notice."""
        self.now_ms += float(ms)
        for node_id in map(int, nodes or ("1", "2", "3")):
            self.voters[node_id].tick(self.now_ms)
            self._settle(node_id)

    def do_deliver(self, *between: str) -> None:
        """Deliver until nothing is under way; with `2-3`, what is between those two is lost."""
        lost = {tuple(map(int, pair.split("-"))) for pair in between}
        while self.wire:
            source, (to, message) = self.wire.pop(0)
            if (source, to) in lost or (to, source) in lost:
                self.out.append(f"  lost {source}→{to} {_text(message)}")
                continue
            self.voters[to].receive(message, self.now_ms)
            self._settle(to)

    def do_propose(self, node_id: str, text: str) -> None:
        index = self.voters[int(node_id)].propose(text.encode())
        self.out.append(f"  at {index}")
        self._settle(int(node_id))

    def do_transfer(self, node_id: str, to: str) -> None:
        self.voters[int(node_id)].transfer(int(to), self.now_ms)
        self._settle(int(node_id))

    def do_roles(self) -> None:
        for node_id, raft in self.voters.items():
            voters = " ".join(map(str, raft.voters.latest))
            self.out.append(
                f"  {node_id}: {raft.role.value}, epoch {raft.epoch}, last {raft.log.last_index}, "
                f"committed {raft.commit_index}, voters {voters}"
            )

    def _settle(self, node_id: int) -> None:
        raft = self.voters[node_id]
        while (save := raft.take()) is not None:
            if save.hard_state is not None:
                self.out.append(f"  {node_id} saves {_text(save.hard_state)}")
            for entry in save.entries:
                self.out.append(
                    f"  {node_id} saves entry {entry.index} of epoch {entry.epoch} ({entry.kind})"
                )
            released = raft.saved(save)
            for outgoing in released.messages:
                self.out.append(f"  {node_id}→{outgoing.to} {_text(outgoing.message)}")
                self.wire.append((node_id, outgoing))
            for entry in released.committed:
                self.out.append(f"  {node_id} applies {entry.index} {entry.data.decode('latin-1')!r}"[:60])


def _text(what: Message | HardState) -> str:
    fields = []
    for field in msgspec.structs.fields(what):
        value = getattr(what, field.name)
        if field.name == "entries":
            fields.append(f"entries={[entry.index for entry in value]}")
        elif field.name == "sender":
            continue
        else:
            fields.append(f"{field.name}={value}")
    return f"{type(what).__name__}({', '.join(fields)})"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_voters_say_what_the_transcript_says(path: Path):
    recorded = path.read_text(encoding="utf-8").splitlines()
    conversation, said = Conversation(), []
    for line in recorded:
        if line.startswith(">"):
            said += [line, *conversation.run(line[1:])]
        elif not line.startswith("  "):
            said.append(line)
    if os.environ.get("RINGLOG_GOLDEN") == "write":
        path.write_text("\n".join(said) + "\n", encoding="utf-8")
    assert said == recorded


def test_there_are_transcripts():
    assert len(TRANSCRIPTS) >= 4
