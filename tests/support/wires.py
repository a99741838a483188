"""The network between the nodes of a cluster, which can be cut in one direction at a time: each node has a network
namespace of its own, and they meet at a bridge. Where namespaces are not allowed, detours take their place.

A cut drops packets and tells nobody: connections stay, and nothing comes through. It is made by a wrong hardware
address for the other host, so the kernel needs neither filters nor queues. What is set up ends with this process,
however it ends: a namespace lives as long as the `cat` in it, and that as long as its standard input.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Protocol

from ringlog.errors import RinglogError

CLIENTS = 0
"""Where the test and its clients are, as a place in the network."""
_NOWHERE = "02:00:00:00:00:ff"
_PORT = "eth0"


class NoNamespaces(RinglogError):
    """This machine does not let us make network namespaces."""

    code = "NO_NAMESPACES"


class Wires(Protocol):
    """What carries the packets between nodes."""

    name: str
    reach_clients: bool
    """Whether the way between clients and a node can be cut, too."""

    def host_of(self, node_id: int) -> str:
        """The address where a node listens."""
        ...

    def lead(self, ports: Mapping[int, int]) -> None:
        """Nodes listen for each other at these ports, each also at the next one. Before any is started."""
        ...

    def program_of(self, node_id: int) -> list[str]:
        """The command that starts a node there, without the node's options."""
        ...

    def environment_of(self, node_id: int) -> dict[str, str]:
        """For the processes of a node."""
        ...

    def cut_one_way(self, source: int, destination: int) -> None:
        """What the one sends, the other does not get."""
        ...

    def heal(self) -> None:
        """All cuts are mended."""
        ...

    def close(self) -> None: ...


class NamespaceWires:
    """A namespace for each node, and a bridge in one of its own."""

    name = "network namespaces"
    reach_clients = True

    def __init__(self, nodes: Iterable[int]) -> None:
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._hub: subprocess.Popen[bytes] | None = None
        self._cuts: set[tuple[int, int]] = set()
        self._net = (
            f"198.18.{random.SystemRandom().randrange(256)}"  # of the range kept for tests of networks
        )
        self._port_here = f"rl{os.getpid():x}"
        places = [CLIENTS, *nodes]
        try:
            self._hub = _new_namespace()
            _ip(self._hub, "link", "add", "bridge", "type", "bridge")
            _ip(self._hub, "link", "set", "bridge", "up")
            for place in places:
                self._plug_in(place)
            for place in places:
                for other in places:
                    if other != place:
                        self._point(place, other, _hardware(other))
        except NoNamespaces:
            self.close()
            raise

    def _plug_in(self, place: int) -> None:
        """Lay a wire from the bridge to a place, which has an address then."""
        assert self._hub is not None
        if place != CLIENTS:
            self._holders[place] = _new_namespace()
            _ip(self._holders[place], "link", "set", "lo", "up")
        there, port = self._holders.get(place), self._port_of(place)
        at_bridge = f"port{place}"
        home = str(there.pid if there is not None else os.getpid())
        _ip(self._hub, "link", "add", at_bridge, "type", "veth", "peer", "name", port, "netns", home)
        _ip(self._hub, "link", "set", at_bridge, "master", "bridge", "up")
        _ip(there, "link", "set", port, "address", _hardware(place))
        _ip(there, "address", "add", f"{self.host_of(place)}/24", "dev", port)
        _ip(there, "link", "set", port, "up")

    def _port_of(self, place: int) -> str:
        return self._port_here if place == CLIENTS else _PORT

    def _point(self, source: int, destination: int, hardware: str) -> None:
        """Tell a host where another one is."""
        words = ("neigh", "replace", self.host_of(destination), "lladdr", hardware)
        _ip(self._holders.get(source), *words, "dev", self._port_of(source), "nud", "permanent")

    def host_of(self, node_id: int) -> str:
        return f"{self._net}.{node_id + 1}"

    def lead(self, ports: Mapping[int, int]) -> None:
        """Every port can be reached that is not cut off."""

    def program_of(self, node_id: int) -> list[str]:
        return [*_inside(self._holders[node_id]), sys.executable, "-m", "ringlog.node"]

    def environment_of(self, node_id: int) -> dict[str, str]:
        return {}

    def cut_one_way(self, source: int, destination: int) -> None:
        self._cuts.add((source, destination))
        self._point(source, destination, _NOWHERE)

    def heal(self) -> None:
        while self._cuts:
            source, destination = self._cuts.pop()
            self._point(source, destination, _hardware(destination))

    def close(self) -> None:
        """The wires end with the bridge, also the end that lies here."""
        for holder in (self._hub, *self._holders.values()):
            if holder is not None:
                holder.communicate()


def open_wires(nodes: Iterable[int]) -> Wires:
    """Namespaces where they are allowed; else detours, and it is said why."""
    from tests.support.detours import DetourWires

    nodes = list(nodes)
    try:
        return NamespaceWires(nodes)
    except NoNamespaces as why:
        print(
            f"no network namespaces here ({why}): nodes speak through connections that can be held up instead"
        )
        return DetourWires(nodes)


def _new_namespace() -> subprocess.Popen[bytes]:
    """A process in a network namespace of its own, which ends when its standard input does."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None or shutil.which("ip") is None:
        raise NoNamespaces("unshare, nsenter and ip are needed: install util-linux and iproute2")
    holder = subprocess.Popen(
        ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert holder.stdin is not None and holder.stdout is not None
    try:  # what it says back tells that it is there
        holder.stdin.write(b"here\n")
        holder.stdin.flush()
        answer = holder.stdout.readline()
    except BrokenPipeError:
        answer = b""
    if answer != b"here\n":
        said = holder.communicate()[1]
        raise NoNamespaces(f"unshare --net: {said.decode(errors='replace').strip()}")
    return holder


def _inside(holder: subprocess.Popen[bytes] | None) -> list[str]:
    return [] if holder is None else ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]


def _ip(holder: subprocess.Popen[bytes] | None, *words: str) -> None:
    done = subprocess.run([*_inside(holder), "ip", *words], capture_output=True, check=False)
    if done.returncode:
        raise NoNamespaces(f"ip {' '.join(words)}: {done.stderr.decode(errors='replace').strip()}")


def _hardware(place: int) -> str:
    return f"02:00:00:00:00:{place + 1:02x}"
