"""Where a node listens: its own processes must not meet there."""

from __future__ import annotations

import pytest

from ringlog.errors import InvalidRequest
from ringlog.node.free_ports import require_apart

LISTEN, CLUSTER = ("tcp://127.0.0.1:9401", "--listen"), ("tcp://127.0.0.1:9401", "--cluster")


def test_two_processes_of_a_node_at_one_address_are_refused_by_their_options():
    with pytest.raises(InvalidRequest, match=r"--listen and --cluster both need tcp://127\.0\.0\.1:9401"):
        require_apart([LISTEN, ("tcp://127.0.0.1:9400", "--cluster"), CLUSTER])


def test_ports_that_the_system_chooses_are_never_the_same():
    require_apart([("tcp://127.0.0.1:0", "--listen"), ("tcp://127.0.0.1:0", "--metrics-listen")])
    with pytest.raises(InvalidRequest):
        require_apart([LISTEN, LISTEN])
