"""A node's standing with the active controller: it registers, says that it lives, and asks to leave. Pure.

    (new) ── registered ──► fenced ── heartbeats that say "I know the metadata" ──► serving

A registration that is over, because another process registered as the same node, ends the node: its shards have led and
followed under it.
Nothing waits for an answer: a sign of life whose answer is lost is followed by the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from ringlog.errors import ClusterMismatch, RinglogError, StaleBroker
from ringlog.limits import BROKER_BEAT_MS
from ringlog.net.cluster_messages import (
    BrokerHeartbeatReply,
    BrokerHeartbeatRequest,
    RegisterBrokerReply,
    RegisterBrokerRequest,
)

HURRY_MS = 50.0
"""Between two requests while the node waits to register, to serve or to stop."""

_log = logging.getLogger(__name__)


class BrokerSession:
    """One life of a node, as its controller process knows it."""

    def __init__(self, registration: RegisterBrokerRequest) -> None:
        self._registration = registration
        self._at_ms = 0.0
        self._failed: str | None = None
        self.broker_epoch: int | None = None
        """Of the registration; None while there is none."""
        self.registered_version = 0
        """What was committed when it registered: older metadata is that of an earlier life."""
        self.serving = False
        """The controller takes it for alive and caught up."""
        self.may_stop = False
        """It leads nothing that another one could."""
        self.heard_ms = 0.0
        """When the controller was last heard of."""

    @property
    def due_ms(self) -> float:
        """When `next_request` has one."""
        return self._at_ms

    def next_request(
        self,
        *,
        served_version: int,
        want_stop: bool,
        now_ms: float,
        loads: Callable[[], list[tuple[int, int]]] = list,
        still_shards: Callable[[], list[int]] = list,
    ) -> RegisterBrokerRequest | BrokerHeartbeatRequest | None:
        """What is to be said to the controller now. While the node serves, `loads`: of the partitions that it leads;
        `still_shards`: its shards that stand still."""
        if now_ms < self._at_ms:
            return None
        hurry = self.broker_epoch is None or not self.serving or (want_stop and not self.may_stop)
        self._at_ms = now_ms + (HURRY_MS if hurry else BROKER_BEAT_MS)
        if self.broker_epoch is None:
            return self._registration
        return BrokerHeartbeatRequest(
            self._registration.node_id,
            self.broker_epoch,
            max(served_version, 0),
            want_stop,
            loads() if self.serving else [],
            still_shards() if self.serving else [],
        )

    def answered(
        self,
        request: RegisterBrokerRequest | BrokerHeartbeatRequest,
        reply: msgspec.Struct | RinglogError,
        now_ms: float,
    ) -> None:
        """What the controller said; it may be late."""
        if not isinstance(reply, RinglogError):
            self.heard_ms = now_ms
        if isinstance(reply, RegisterBrokerReply):
            if self.broker_epoch is None:
                self.broker_epoch, self.registered_version = reply.broker_epoch, reply.metadata_version
                self._failed = None
        elif isinstance(request, BrokerHeartbeatRequest) and request.broker_epoch == self.broker_epoch:
            if isinstance(reply, BrokerHeartbeatReply):
                self.serving, self.may_stop = not reply.fenced, reply.may_stop
            elif isinstance(reply, StaleBroker):
                raise ClusterMismatch(
                    f"another process registered as node {request.node_id}: {reply}. Give each node its own id"
                )
        elif isinstance(reply, RinglogError) and not reply.retriable and self._failed != str(reply):
            self._failed = str(reply)
            _log.error("node %d is not taken into the cluster: %s", self._registration.node_id, reply)
