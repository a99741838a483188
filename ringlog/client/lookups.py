"""What a fetcher must know before it can fetch: who serves partitions, and where their logs begin and end. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringlog.client.assigned import UNKNOWN, Assigned, Place
from ringlog.client.assignment import Assignment
from ringlog.client.cluster_view import NO_LEADER, node_of
from ringlog.errors import CorruptFrame, OffsetOutOfRange, RinglogError, UnknownTopic
from ringlog.limits import REPLY_BODY_BYTES_MAX
from ringlog.net.framing import Api
from ringlog.net.messages import (
    ListOffsetsReply,
    ListOffsetsRequest,
    MetadataReply,
    MetadataRequest,
    OffsetQuery,
    TopicMetadata,
    decode_body,
    encode_body,
)
from ringlog.net.session import ANY_NODE
from ringlog.net.wire_errors import error_by_number


@dataclass(slots=True, eq=False)
class Ask:
    """A request to send, and where its answer goes."""

    api: Api
    body: bytes
    partition: int
    timeout_s: float
    answered: Callable[[memoryview, float], None]
    failed: Callable[[RinglogError, float], None]
    topic: str | None = None
    """Whose metadata proved wrong."""
    node: int = ANY_NODE
    """The node that must get it."""
    waits_s: float = 0.0
    """How long it may wait there for something to say."""
    to_leader: bool = True
    """It is for the node that leads, and worthless when another one does."""
    landing_bytes: int = 0
    """How large a place its reply may be put in; 0: it comes through the socket."""


def place_of(topic: TopicMetadata, index: int) -> Place | None:
    """Where a topic's partition is served, None when there is no such partition."""
    if topic.error:
        return None
    for partition in topic.partitions:
        if partition.index == index:
            node = node_of(partition)
            lanes = zip(partition.replicas, partition.lanes, strict=False)
            return Place(
                topic.topic_id,
                partition.partition,
                partition.lane,
                node,
                partition.leader_epoch,
                tuple((replica, lane) for replica, lane in lanes if replica in partition.isr),
            )
    return None


def look_up_offsets(assignment: Assignment, some: list[Assigned]) -> Ask:
    """Ask which offsets partitions of one lane should start from."""
    asked = [(a, a.generation, a.reset) for a in some]
    for assigned in some:
        assignment.fly(assigned)
    queries = [OffsetQuery(a.place.partition, end) for a, _, end in asked if end is not None]

    def flying() -> dict[int, Assigned]:
        return {
            a.place.partition: a for a, generation, _ in asked if a.generation == generation and a.in_flight
        }

    def answered(body: memoryview, now_s: float) -> None:
        left = flying()
        try:
            found = decode_body(body, ListOffsetsReply, bytes_max=REPLY_BODY_BYTES_MAX).found
        except CorruptFrame as wrong:
            failed(wrong, now_s)
            return
        for row in found:
            assigned = left.pop(row.partition, None)
            if assigned is None:
                continue
            assignment.land(assigned)
            if row.error:
                error = error_by_number(row.error, f"{assigned.tp}: no offset to start from was found")
                assignment.went_wrong(assigned, error, now_s)
            else:
                assigned.retries = 0
                assigned.recover()
                assigned.stand_at(row.offset)
        for assigned in left.values():
            assignment.land(assigned)
            assignment.back_off(assigned, now_s)

    def failed(error: RinglogError, now_s: float) -> None:
        for assigned in flying().values():
            assignment.land(assigned)
            assignment.went_wrong(assigned, error, now_s)

    body, timeout_s = encode_body(ListOffsetsRequest(queries)), assignment.settings.request_timeout_ms / 1000
    place = some[0].place
    return Ask(Api.LIST_OFFSETS, body, place.partition, timeout_s, answered, failed, node=place.node)


def refresh_places(assignment: Assignment, topic: str, under_way: set[str]) -> Ask:
    """Ask where a topic's partitions are served by now."""
    under_way.add(topic)

    def affected() -> list[Assigned]:
        if topic not in under_way:
            return []
        under_way.discard(topic)
        return [a for a in assignment.assigned.values() if a.misplaced and a.tp.topic == topic]

    def answered(body: memoryview, now_s: float) -> None:
        some = affected()
        try:
            found = next(
                (
                    t
                    for t in decode_body(body, MetadataReply, bytes_max=REPLY_BODY_BYTES_MAX).topics
                    if t.name == topic
                ),
                None,
            )
        except CorruptFrame as wrong:
            for assigned in some:
                assignment.went_wrong(assigned, wrong, now_s)
            return
        for assigned in some:
            _replace(assignment, assigned, found, now_s)

    def failed(error: RinglogError, now_s: float) -> None:
        for assigned in affected():
            assignment.went_wrong(assigned, error, now_s)

    body, timeout_s = encode_body(MetadataRequest([topic])), assignment.settings.request_timeout_ms / 1000
    return Ask(Api.METADATA, body, 0, timeout_s, answered, failed, topic)


def _replace(assignment: Assignment, assigned: Assigned, topic: TopicMetadata | None, now_s: float) -> None:
    place = None if topic is None else place_of(topic, assigned.tp.partition)
    if place is None:
        error = UnknownTopic(f"there is no {assigned.tp} any more. Assign others, or create it")
        assignment.went_wrong(assigned, error, now_s)
        return
    before, assigned.place, assigned.misplaced = assigned.place, place, False
    assigned.recover()
    if place.node == NO_LEADER:
        assigned.misplaced = True
        assignment.back_off(assigned, now_s)
    elif place.leader_epoch > before.leader_epoch:
        assigned.retries, assigned.retry_at_s = 0, 0.0
    else:
        # Answers may bring the same metadata again for a while: ask no faster than retries are made.
        assignment.back_off(assigned, now_s)
    if before.topic_id != place.topic_id:
        assignment.drop(assigned)
        assigned.position = assigned.fetch_offset = UNKNOWN  # an offset of the old topic means nothing here
        gone = OffsetOutOfRange(
            f"{assigned.tp} was deleted and made anew: its offsets begin again. Seek to one"
        )
        assignment.out_of_range(assigned, gone)
