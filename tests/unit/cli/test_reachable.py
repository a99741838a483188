"""Whether anybody listens: how long a command waits for a node that was started in the line before."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from cli import reachable
from ringlog.errors import NodeUnavailable
from tests.support.patience import stretched
from tests.support.router import RouterNode


@pytest.mark.parametrize(("bootstrap", "waited_s"), [("127.0.0.1:1", 3), ("127.0.0.1:1,127.0.0.1:2", 6)])
def test_nodes_that_share_the_cores_are_given_the_time_of_each(monkeypatch, bootstrap, waited_s):
    now_s = [0.0]
    monkeypatch.setattr(reachable.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(reachable.time, "sleep", lambda pause_s: now_s.append(now_s.pop() + pause_s))
    monkeypatch.setattr(reachable, "_look", lambda endpoints: reachable.Found.NOBODY)
    with pytest.raises(NodeUnavailable, match="no node listens at"):
        reachable.require_listener(bootstrap)
    assert now_s[0] == pytest.approx(waited_s, abs=0.1)


def test_an_empty_address_is_told_as_the_one_that_is_meant(monkeypatch):
    monkeypatch.setattr(reachable, "_look", lambda endpoints: reachable.Found.NOBODY)
    with pytest.raises(NodeUnavailable, match=r"no node listens at 127\.0\.0\.1:9400\."):
        reachable.require_listener("", patience_s=0)


def test_a_name_that_no_host_has_is_told_as_such(monkeypatch):
    def unknown(*_: object) -> socket.socket:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(reachable.socket, "create_connection", unknown)
    with pytest.raises(NodeUnavailable, match=r"no host is known by the name in broker\.test:9400\. Check"):
        reachable.require_listener("broker.test:9400", patience_s=0)


class Listener:
    """Takes connections, and says what it is told to say to each, which may be nothing."""

    def __init__(self, says: bytes | None) -> None:
        self._says = says
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.bootstrap = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._socket.accept()
                self._taken.append(taken)
                if self._says is not None:
                    taken.sendall(self._says)
                    taken.close()

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in (self._socket, *self._taken):
            one.close()


def test_somebody_who_says_nothing_is_told_of_and_given_up(capsys, monkeypatch):
    monkeypatch.setattr(reachable, "TRY_S", 0.05)
    with (
        Listener(None) as other,
        pytest.raises(NodeUnavailable, match="says nothing: it is no node of ringlog, or"),
    ):
        reachable.require_listener(other.bootstrap, patience_s=0.1, silence_s=0.5)
    told = f"ringlog: what listens at {other.bootstrap} says nothing; it is waited for up to 0 s.\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("says", [b"SSH-2.0-OpenSSH_9.2\r\n", b""], ids=["another protocol", "hangs up"])
def test_somebody_who_does_not_greet_as_a_node_is_given_up(says):
    with (
        Listener(says) as other,
        pytest.raises(NodeUnavailable, match="is no node of ringlog: it does not greet"),
    ):
        reachable.require_listener(other.bootstrap, patience_s=0.1)


def test_a_node_beside_somebody_else_is_found_at_once():
    with Listener(None) as other, RouterNode() as node:
        began_s = time.monotonic()
        reachable.require_listener(f"{other.bootstrap},{node.bootstrap}")
        assert time.monotonic() - began_s < stretched(3.0)
