"""All nodes crash together, and some are back: what was flushed is there, so they lead, whoever never returns."""

from __future__ import annotations

import pytest

from ringlog.controller.active import ActiveController
from ringlog.controller.records import Partition
from ringlog.model import NO_LEADER
from ringlog.net.cluster_messages import BrokerHeartbeatRequest, RegisterBrokerRequest
from tests.support.controller_world import cluster

SESSION_MS = 1000


class Term:
    """A controller that was just elected: every node is what it was when the last one left, and none was heard."""

    def __init__(self) -> None:
        self.controller = ActiveController(cluster(), [], session_ms=SESSION_MS, now_ms=0)
        self.now_ms = 0
        self._epochs = {node: broker.broker_epoch for node, broker in self.controller.planned.brokers.items()}

    def _judge(self, request: RegisterBrokerRequest | BrokerHeartbeatRequest) -> None:
        version = self.controller.planned.version
        outcome = self.controller.judge(request, committed_version=version, now_ms=self.now_ms)
        self.controller.appended(outcome.records)

    def register(self, node: int, *, clean: bool = False, flush: str = "ack") -> None:
        request = RegisterBrokerRequest(
            node, f"{node}b", f"d{node}", [], "", shards=2, clean_stop=clean, flush=flush
        )
        self._judge(request)
        self._epochs[node] = self.controller.planned.brokers[node].broker_epoch

    def beat(self, *nodes: int, ready: bool = True) -> None:
        for node in nodes:
            version = self.controller.planned.version if ready else -1
            self._judge(BrokerHeartbeatRequest(node, self._epochs[node], version))

    def run(self, ms: int, *nodes: int) -> None:
        """Time in which these nodes are heard."""
        for _ in range(ms // 100):
            self.now_ms += 100
            self.beat(*nodes)
            self.controller.appended(self.controller.due(self.now_ms))

    @property
    def partitions(self) -> list[Partition]:
        return list(self.controller.planned.partitions.values())


@pytest.mark.parametrize("away", [1, 2, 3])
def test_the_first_two_that_are_back_lead_though_the_third_never_returns(away: int):
    term, back = Term(), [node for node in (1, 2, 3) if node != away]
    for node in back:
        term.register(node)
    term.run(3 * SESSION_MS, *back)
    assert all(away not in one.isr and one.leader in back for one in term.partitions)
    assert all(one.isr for one in term.partitions)


def test_the_first_one_that_is_back_leads_before_anybody_else_is():
    term = Term()
    term.register(2)
    term.run(3 * SESSION_MS, 2)
    assert all((one.leader, one.isr) == (2, (2,)) for one in term.partitions)


def test_who_restarts_beside_others_that_live_leaves_the_in_sync_ones_at_once():
    term = Term()
    term.beat(1, 3)
    term.register(2)
    assert all(set(one.isr) == {1, 3} for one in term.partitions)


def test_who_restarted_before_the_others_were_heard_leaves_when_they_are():
    term = Term()
    term.register(2)
    assert all(set(one.isr) == {1, 2, 3} for one in term.partitions), "nobody else is certain to be there"
    term.beat(2, ready=False)
    for _ in range(20):
        term.now_ms += 100
        term.beat(1, 3)
        term.beat(2, ready=False)
        term.controller.appended(term.controller.due(term.now_ms))
    assert all(set(one.isr) == {1, 3} for one in term.partitions), "they would wait for it"


def test_where_acks_do_not_wait_for_the_disk_who_crashed_is_in_sync_with_nobody():
    term = Term()
    for node in (1, 2):
        term.register(node, flush="os")
    term.run(3 * SESSION_MS, 1, 2)
    assert all((one.leader, one.isr) == (NO_LEADER, (3,)) for one in term.partitions)
