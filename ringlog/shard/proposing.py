"""Proposals of a shard's leaders: which replicas are in sync, as the controller is asked to write it down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringlog.controller.leaders import may_lead
from ringlog.limits import FETCH_PARTITIONS_MAX
from ringlog.log.partition import LogStatus
from ringlog.net.cluster_messages import AlterIsrReply, AlterIsrRequest, IsrChange
from ringlog.net.messages import encode_body
from ringlog.replication.view import IsrProposal
from ringlog.ring.frame import frame_header
from ringlog.shard.asker import Outlet
from ringlog.shard.commands import NodeApi
from ringlog.shard.hosting import HostedPartition, Hosting
from ringlog.shard.replica_log import HostedLog

PROPOSE_AGAIN_MS = 500
"""A proposal that was not answered, by a refusal or a change of the partition, is sent again."""


class _Sent(NamedTuple):
    """A proposal on its way to the controller."""

    at_ms: int
    number: int
    """Of the request."""
    change: IsrChange


class ProposalDesk:
    """All proposals of a shard."""

    def __init__(
        self, hosting: Hosting, leading: Mapping[int, HostedPartition], lag_ms_max: int, first_number: int
    ) -> None:
        """`leading`: the partitions that are led here, or are to be; `lag_ms_max`: how long a replica may lag and be in
        sync; `first_number`: above those of all requests of former processes, so that no answer to one is taken for
        ours."""
        self._hosting = hosting
        self._lag_ms_max = lag_ms_max
        self._leading = leading
        self._sent: dict[int, _Sent] = {}
        """When, and with which request, each partition's proposal was last sent."""
        self._requests = first_number
        """Of the last request to the controller."""

    def gone(self, partition: int) -> None:
        """A partition is closed here."""
        self._sent.pop(partition, None)

    def propose(self, controller: Outlet, now_ms: int) -> None:
        """Ask for the changes that are due."""
        changes = self._resignations(now_ms)
        for hosted in self._leading.values():
            proposal = self._due(hosted, now_ms)
            if proposal is not None:
                changes.append(self._change(proposal))
        for at in range(0, len(changes), FETCH_PARTITIONS_MAX):
            self._ask(controller, changes[at : at + FETCH_PARTITIONS_MAX], now_ms)

    def _resignations(self, now_ms: int) -> list[IsrChange]:
        """Of partitions that a disk keeps closed here, while others are in sync with them."""
        image, changes = self._hosting.image, []
        for partition in self._hosting.closed:
            record, sent = image.partitions.get(partition), self._sent.get(partition)
            if record is None or image.node_id not in record.isr or len(record.isr) < 2:
                continue
            me = (image.node_id, image.brokers[image.node_id].broker_epoch)
            change = IsrChange(partition, record.leader_epoch, record.partition_epoch, [me], renews=True)
            if sent is None or sent.change != change or now_ms - sent.at_ms >= PROPOSE_AGAIN_MS:
                changes.append(change)
        return changes

    def _due(self, hosted: HostedPartition, now_ms: int) -> IsrProposal | None:
        """What is new, or was not answered for long."""
        replica, sent = hosted.replica, self._sent.get(hosted.partition)
        if replica is None:
            return None
        waits = sent is not None and now_ms - sent.at_ms < PROPOSE_AGAIN_MS
        if replica.renewal is not None:
            is_sent = sent is not None and sent.change == self._change(replica.renewal)
            return None if waits and is_sent else replica.renewal
        if replica.leader is None:
            return None
        view = replica.leader.view
        if hosted.log.status is not LogStatus.OPEN and len(view.isr) > 1:
            # Its disk is full: others can write. It counts records that it could not, so it judges nobody.
            return None if waits else replica.resignation(view, replica.leader.node_epoch)
        proposal = replica.leader.propose(HostedLog(hosted.log), self._lag_ms_max, now_ms, self._lives)
        return replica.leader.pending if proposal is None and not waits else proposal

    def _ask(self, controller: Outlet, changes: list[IsrChange], now_ms: int) -> None:
        self._requests += 1
        for change in changes:
            self._sent[change.partition] = _Sent(now_ms, self._requests, change)
        image = self._hosting.image
        epoch = image.brokers[image.node_id].broker_epoch
        body = encode_body(AlterIsrRequest(image.node_id, epoch, changes))
        header = frame_header(
            api_key=NodeApi.ALTER_ISR, partition=0, correlation=self._requests, body_bytes=len(body)
        )
        controller.send(header + body)

    def _lives(self, node: int, node_epoch: int) -> bool:
        image = self._hosting.image
        return may_lead(image, node) and image.brokers[node].broker_epoch == node_epoch

    def _change(self, proposal: IsrProposal) -> IsrChange:
        """Who is in sync and was not heard of in this epoch is named as the metadata knows it: it only stays."""
        brokers = self._hosting.image.brokers
        isr = []
        for node, epoch in proposal.isr:
            known = brokers.get(node)
            isr.append((node, known.broker_epoch if epoch < 0 and known is not None else epoch))
        return IsrChange(
            proposal.partition, proposal.leader_epoch, proposal.partition_epoch, isr, proposal.renews
        )

    def altered(self, number: int, reply: AlterIsrReply) -> list[HostedPartition]:
        """The controller's answer to a request: what it refused may be proposed anew; what it took shows in the
        metadata. The partitions whose watermark moved.

        A refusal of an earlier request is of what was proposed then, or of a copy of the last one, which is judged
        after it."""
        moved = []
        for state in reply.partitions:
            hosted, sent = self._leading.get(state.partition), self._sent.get(state.partition)
            leader = hosted.replica.leader if hosted is not None and hosted.replica is not None else None
            if hosted is None or leader is None or leader.pending is None or not state.error:
                continue
            is_last = sent is not None and sent.number == number
            if is_last and leader.refused(
                leader.pending, state.leader_epoch, state.partition_epoch, HostedLog(hosted.log)
            ):
                moved.append(hosted)
        return moved
