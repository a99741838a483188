"""The controller while it leads the quorum: judges requests by what is on its way, and fences who falls silent. Pure.

Two images: what is committed, which everybody keeps, and what is *planned*, which also has the records that are
appended and not committed yet. Requests are judged by the plan, so two of them in a row never decide on the same state.
When leadership ends, the plan is thrown away with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringlog.controller import balance, brokers, cluster_settings, commands, isr, leaders, moves
from ringlog.controller.commands import Outcome
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import MetadataRecord
from ringlog.controller.still import StillShards
from ringlog.controller.topic_config import NOTHING
from ringlog.controller.unclean import UncleanElections
from ringlog.errors import UnsupportedVersion
from ringlog.limits import BROKER_ABSENT_MS, REPLICATION_FACTOR_MAX
from ringlog.net.cluster_messages import (
    AlterIsrRequest,
    BrokerHeartbeatRequest,
    CreateOffsetsTopicRequest,
    RegisterBrokerRequest,
)
from ringlog.net.messages import (
    AddPartitionsRequest,
    AlterTopicRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    InitProducerRequest,
)
from ringlog.net.move_messages import AlterClusterRequest, DrainNodeRequest, ReassignRequest

Request = (
    RegisterBrokerRequest
    | BrokerHeartbeatRequest
    | AlterIsrRequest
    | CreateTopicRequest
    | CreateOffsetsTopicRequest
    | DeleteTopicRequest
    | AlterTopicRequest
    | AddPartitionsRequest
    | InitProducerRequest
    | ReassignRequest
    | DrainNodeRequest
    | AlterClusterRequest
)

BALANCE_MS = 1_000.0
"""How often partitions are looked at for a leader that is not the preferred one."""


STOOD_STILL_MS = 250.0
"""`due` is called more often than this, unless its process was held up, by a slow disk or a pause."""


class ActiveController:
    """One term of office."""

    def __init__(
        self,
        committed: MetadataImage,
        appended: Iterable[MetadataRecord],
        *,
        session_ms: float,
        now_ms: float,
        default_partitions: int = 4,
        nodes: int = REPLICATION_FACTOR_MAX,
        topic_defaults: Mapping[str, str] = NOTHING,
        absent_ms: float = BROKER_ABSENT_MS,
    ) -> None:
        """`nodes`: how many the cluster has when all of them are there; `topic_defaults`: what holds for topics that do
        not say otherwise; `absent_ms`: nobody waits for a node that is silent for so long."""
        self.planned = MetadataImage()
        for record in [*committed.records(), *appended]:
            self.planned.replay(record)
        self._default_partitions = default_partitions
        self._members = nodes
        self._removed_before = frozenset(self.planned.removed)
        """Those that `nodes` does not count any more."""
        self._topic_defaults = topic_defaults
        self._unclean = UncleanElections(topic_defaults, wait_ms=absent_ms)
        self._producer_ids = commands.ProducerIdSource()
        self._liveness = brokers.Liveness(session_ms, absent_ms)
        self._liveness.take_office(now_ms)
        self._looked_ms = now_ms
        self._balance_at_ms = now_ms + BALANCE_MS
        self._loads = balance.LeaderLoads(now_ms)
        self._still = StillShards()

    def judge(self, request: Request, *, committed_version: int, now_ms: float) -> Outcome:
        """Records and a reply. The caller appends the records and gives them to `appended`; the reply goes out when
        they are committed."""
        image = self.planned
        match request:
            case RegisterBrokerRequest():
                self._liveness.heard(request.node_id, now_ms)
                return brokers.register(image, request, self._lives)
            case BrokerHeartbeatRequest():
                outcome = brokers.heartbeat(image, request, committed_version=committed_version)
                self._liveness.heard(request.node_id, now_ms)
                self._loads.heard(request.loads, now_ms)
                relieved = self._still.heard(
                    image, request.node_id, request.still_shards, self._topic_defaults
                )
                return outcome if outcome.records else outcome._replace(records=relieved)
            case AlterIsrRequest():
                return isr.alter_isr(image, request, self._topic_defaults)
            case CreateTopicRequest():
                return commands.create_topic(
                    image,
                    request,
                    shards=1,
                    default_partitions=self._default_partitions,
                    nodes=self._nodes(),
                    absent=self._liveness.absent(image, now_ms),
                )
            case CreateOffsetsTopicRequest():
                absent = self._liveness.absent(image, now_ms)
                return commands.create_offsets_topic(image, shards=1, nodes=self._nodes(), absent=absent)
            case DeleteTopicRequest():
                return commands.delete_topic(image, request)
            case AlterTopicRequest():
                return commands.alter_topic(image, request)
            case AddPartitionsRequest():
                absent = self._liveness.absent(image, now_ms)
                return commands.add_partitions(image, request, shards=1, nodes=self._nodes(), absent=absent)
            case ReassignRequest():
                return moves.reassign(image, request, self._topic_defaults)
            case DrainNodeRequest():
                return moves.drain(image, request, self._topic_defaults)
            case AlterClusterRequest():
                return cluster_settings.alter_cluster(image, request)
            case InitProducerRequest():
                return self._producer_ids.init_producer(image)
        raise UnsupportedVersion(f"{type(request).__name__} is no request to the controller")

    def _lives(self, node_id: int) -> bool:
        return self._liveness.lives(self.planned, node_id)

    def _nodes(self) -> int:
        """How many nodes the cluster has when all are there: without those that were removed in this term, with those
        that are left out of --cluster here and not removed yet."""
        left = self._members - len(self.planned.removed - self._removed_before)
        return max(left, len(self.planned.brokers))

    def lost(self, node_id: int, now_ms: float) -> None:
        """The connection to a node broke then."""
        self._liveness.lost(node_id, now_ms)

    def dead(self, node_id: int) -> None:
        """It is certain that no process of a node is left: it is fenced with what is due next."""
        self._liveness.dead(node_id)

    def due(self, now_ms: float) -> list[MetadataRecord]:
        """Records that nobody asked for: one node that fell silent is fenced, leadership goes home, or
        to where there is less to do, or, where nobody in sync is left, to a replica that was not."""
        gap_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if gap_ms > STOOD_STILL_MS:
            # It was this process that heard nobody, not the others that were silent.
            self._liveness.stood_still(gap_ms, now_ms)
        for node_id in self._liveness.silent(self.planned, now_ms):
            return brokers.fence(self.planned, node_id)
        if now_ms < self._balance_at_ms:
            return []
        self._balance_at_ms = now_ms + BALANCE_MS
        left = brokers.left_behind(self.planned, self._lives)
        if left:
            return left
        ended = isr.ended_moves(self.planned, self._topic_defaults)
        if ended:
            return ended
        absent = self._liveness.absent(self.planned, now_ms)
        unclean = self._unclean.due(self.planned, absent, now_ms)
        if unclean:
            return unclean
        home = leaders.preferred(self.planned)
        if home or not cluster_settings.balances_load(self.planned.settings):
            return home
        return self._loads.due(self.planned, now_ms)

    def appended(self, records: Iterable[MetadataRecord]) -> None:
        """These are in the log now, and will be committed unless leadership ends."""
        for record in records:
            self.planned.replay(record)
