"""The board: one shared page on which the supervisor writes who lives and by which rings they are joined.

Every process of a node looks at `epoch`; when it has moved, it reads the links that concern it again. Only the
supervisor writes, save that each process writes its own state. A link's generation is written after its name.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np

from ringlog.errors import RingStale
from ringlog.limits import CONTROL_RING_BYTES, REPLY_RING_BYTES, REQUEST_RING_BYTES
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.link import LinkEnd, Side

Role = Literal["controller", "net", "shard", "peer"]


class ProcessState(IntEnum):
    """STARTING → READY → STOPPED; a restart begins anew. A controller in a cluster: READY → LEFT → STOPPED."""

    NONE = 0
    STARTING = 1
    READY = 2
    STOPPED = 3
    LEFT = 4
    """Others lead what its node led: the rest of it may stop."""


_HEAD = np.dtype([("epoch", "<u8"), ("stopping", "<u8")])
_PROCESS = np.dtype([("pid", "<i8"), ("incarnation", "<u8"), ("state", "<u8"), ("started_ms", "<i8")])
_LINK = np.dtype([("generation", "<u8"), ("name", "S120")])


class LinkSpec(NamedTuple):
    """Which processes a link joins, by their numbers, and how large its rings are."""

    front: int
    back: int
    request_bytes: int
    reply_bytes: int


class Topology:
    """Who there is: process 0 is the controller, then the network processes, then the shards; last, in a cluster, the
    process that speaks with other nodes. It has rings of its own: clients and replication never wait in one line.

    >>> topology = Topology(nets=1, shards=2, peers=1)
    >>> [topology.label(process) for process in range(topology.process_count)]
    ['controller-0', 'net-0', 'shard-0', 'shard-1', 'peer-0']
    """

    CONTROLLER = 0

    def __init__(self, *, nets: int, shards: int, peers: int = 0) -> None:
        """`peers`: 1 in a cluster, 0 for a node by itself."""
        self.nets = nets
        self.shards = shards
        self.peers = peers
        self.process_count = 1 + nets + shards + peers
        data = (REQUEST_RING_BYTES, REPLY_RING_BYTES)
        control = (CONTROL_RING_BYTES, CONTROL_RING_BYTES)
        self.links: list[LinkSpec] = []
        for front in [*map(self.peer, range(peers)), *map(self.net, range(nets))]:
            self.links.append(LinkSpec(front, self.CONTROLLER, *control))
            self.links += [LinkSpec(front, self.shard(shard), *data) for shard in range(shards)]
        self.links += [LinkSpec(self.CONTROLLER, self.shard(shard), *control) for shard in range(shards)]

    def net(self, index: int) -> int:
        return 1 + index

    def shard(self, index: int) -> int:
        return 1 + self.nets + index

    def peer(self, index: int = 0) -> int:
        return 1 + self.nets + self.shards + index

    def role(self, process: int) -> tuple[Role, int]:
        """What a process does, and which of its kind it is."""
        if process == self.CONTROLLER:
            return "controller", 0
        if process <= self.nets:
            return "net", process - 1
        if process <= self.nets + self.shards:
            return "shard", process - 1 - self.nets
        return "peer", process - 1 - self.nets - self.shards

    def label(self, process: int) -> str:
        role, index = self.role(process)
        return f"{role}-{index}"

    def links_of(self, process: int) -> list[int]:
        """Numbers of the links that end at a process."""
        return [at for at, link in enumerate(self.links) if process in (link.front, link.back)]


class Board:
    """A view of the page."""

    def __init__(self, memory: memoryview, topology: Topology) -> None:
        self.topology = topology
        processes_at = _HEAD.itemsize
        links_at = processes_at + topology.process_count * _PROCESS.itemsize
        self._head = np.frombuffer(memory, _HEAD, 1)
        self.processes = np.frombuffer(memory, _PROCESS, topology.process_count, processes_at)
        self.links = np.frombuffer(memory, _LINK, len(topology.links), links_at)
        self._words = memory[: _HEAD.itemsize].cast("Q")

    @staticmethod
    def bytes_needed(topology: Topology) -> int:
        return (
            _HEAD.itemsize + topology.process_count * _PROCESS.itemsize + len(topology.links) * _LINK.itemsize
        )

    @property
    def epoch(self) -> int:
        return self._words[0]

    @property
    def stopping(self) -> bool:
        """The node is being stopped: nothing new is taken."""
        return bool(self._words[1])

    def start_stopping(self) -> None:
        self._words[1] = 1

    def publish_link(self, link: int, name: str, generation: int) -> None:
        """Tell both ends where they meet from now on."""
        self.links[link]["name"] = name.encode()
        self.links[link]["generation"] = generation

    def bump(self) -> None:
        """Everything written so far is there to be read."""
        self._words[0] += 1

    def set_state(self, process: int, state: ProcessState) -> None:
        self.processes[process]["state"] = state

    def state(self, process: int) -> ProcessState:
        return ProcessState(int(self.processes[process]["state"]))


class LinkChange(NamedTuple):
    """A peer's link was made anew: whoever was at its other end is dead, and what it held is lost."""

    peer: int
    old: LinkEnd | None
    new: LinkEnd


class Links:
    """The ends of all links of one process, kept up with the board."""

    def __init__(self, process: int, board: Board, bells: list[Doorbell]) -> None:
        self.process = process
        self._board = board
        self._bells = bells
        self.bell = bells[process]
        self._mine = board.topology.links_of(process)
        links = board.topology.links
        self._numbers = {
            links[n].back if links[n].front == process else links[n].front: n for n in self._mine
        }
        self._epoch = -1
        self.ends: dict[int, LinkEnd] = {}
        """By the number of the process at the other end."""

    def refresh(self) -> list[LinkChange]:
        """Open what was made anew since the last call. The caller closes the old ends when it is done with them."""
        epoch = self._board.epoch
        if epoch == self._epoch:
            return []
        self._epoch = epoch
        changes: list[LinkChange] = []
        for number in self._mine:
            spec = self._board.topology.links[number]
            generation = int(self._board.links[number]["generation"])
            peer = spec.back if spec.front == self.process else spec.front
            old = self.ends.get(peer)
            if generation == 0 or (old is not None and old.generation == generation):
                continue
            side: Side = "front" if spec.front == self.process else "back"
            name = bytes(self._board.links[number]["name"]).decode()
            try:
                new = LinkEnd(
                    name, generation, side, request_bytes=spec.request_bytes, peer_bell=self._bells[peer]
                )
            except (FileNotFoundError, RingStale):
                self._epoch = -1  # made anew a second time while we looked: look again
                continue
            self.ends[peer] = new
            changes.append(LinkChange(peer, old, new))
        return changes

    def intact(self, peer: int) -> bool:
        """Whether the peer that this process speaks with was not replaced."""
        end = self.ends.get(peer)
        return end is not None and int(self._board.links[self._numbers[peer]]["generation"]) == end.generation

    def announce_wait(self) -> bool:
        """Tell all writers that this process goes to sleep. False: do not, there is something to read."""
        quiet = self._board.epoch == self._epoch
        for end in self.ends.values():
            quiet = end.reader.announce_wait() and quiet
        return quiet

    def end_wait(self, *, rung: bool = True) -> None:
        """After a sleep, or when one was called off. `rung`: the doorbell may have been: to find that it was not costs
        a system call and an exception."""
        for end in self.ends.values():
            end.reader.withdraw_wait()
        if rung:
            self.bell.clear()

    def pump(self) -> bool:
        """Send what waits for room; False while something still does."""
        room = True
        for end in self.ends.values():
            if end.outbox_bytes:
                room = end.pump() and room
        return room
