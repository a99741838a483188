"""Whether anybody listens: how long a command waits for a node that was started in the line before."""

from __future__ import annotations

import pytest

from cli import reachable
from ringlog.errors import NodeUnavailable


@pytest.mark.parametrize(("bootstrap", "waited_s"), [("127.0.0.1:1", 3), ("127.0.0.1:1,127.0.0.1:2", 6)])
def test_nodes_that_share_the_cores_are_given_the_time_of_each(monkeypatch, bootstrap, waited_s):
    now_s = [0.0]
    monkeypatch.setattr(reachable.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(reachable.time, "sleep", lambda pause_s: now_s.append(now_s.pop() + pause_s))
    monkeypatch.setattr(reachable, "_is_taken", lambda endpoints: False)
    with pytest.raises(NodeUnavailable, match="no node listens at"):
        reachable.require_listener(bootstrap)
    assert now_s[0] == pytest.approx(waited_s, abs=0.1)


def test_an_empty_address_is_told_as_the_one_that_is_meant(monkeypatch):
    monkeypatch.setattr(reachable, "_is_taken", lambda endpoints: False)
    with pytest.raises(NodeUnavailable, match=r"no node listens at 127\.0\.0\.1:9400\."):
        reachable.require_listener("", patience_s=0)
