"""What a leader does: appends, keeps its followers up, counts what a majority has, and hands over. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ringlog.consensus.messages import (
    AppendReply,
    AppendRequest,
    Beat,
    BeatReply,
    Entry,
    Message,
    SnapshotRequest,
    TransferRequest,
    Voter,
    encode_voters,
)
from ringlog.consensus.peers import Peer
from ringlog.consensus.saving import Outgoing
from ringlog.consensus.voters import has_majority, index_of_majority
from ringlog.errors import InvalidRequest
from ringlog.limits import QUORUM_APPEND_BYTES_MAX

if TYPE_CHECKING:
    from ringlog.consensus.raft import Raft


class Leadership:
    """One voter's time as leader: from its election to its fall."""

    def __init__(self, raft: Raft, now_ms: float) -> None:
        self._raft = raft
        self._log = raft.log
        self._transfer_to: int | None = None
        self._transfer_until_ms = 0.0
        self._beat_at_ms = now_ms + raft.timing.beat_ms
        self.peers = {
            node_id: Peer(node_id, self._log.last_index + 1, now_ms)
            for node_id in sorted(self._voting() - {raft.me.node_id})
        }
        # Entries of earlier epochs are committed by one of this epoch: there must be one.
        self.append("start", b"")

    @property
    def due_ms(self) -> float:
        """When `tick` is needed."""
        return self._beat_at_ms

    @property
    def transferring(self) -> bool:
        return self._transfer_to is not None

    def append(self, kind: Literal["data", "start", "voters"], data: bytes) -> int:
        """Put an entry into the log and send it."""
        entry = Entry(self._log.last_index + 1, self._raft.epoch, kind, data)
        self._log.append((entry,))
        self._raft.voters.appended((entry,))
        for peer in self.peers.values():
            if peer.next_index == entry.index:
                self._send_entries(peer)
        return entry.index

    def transfer(self, node_id: int, now_ms: float) -> None:
        """Take nothing new until another voter leads, or an election timeout has passed."""
        if node_id not in self.peers:
            raise InvalidRequest(f"node {node_id} is not another voter of the quorum")
        self._transfer_to = node_id
        self._transfer_until_ms = now_ms + self._raft.timing.election_ms
        self._hand_over()

    def heir(self, now_ms: float) -> int | None:
        """The other voter that should lead when this one stops: of those that were heard of lately, the one that has
        most; None when there is none."""
        since_ms = now_ms - self._raft.timing.election_ms
        voters = {voter.node_id for voter in self._raft.voters.latest} - self._raft.leaving
        heard = [
            peer
            for peer in self.peers.values()
            if peer.member is not None and peer.heard_ms > since_ms and peer.node_id in voters
        ]
        return max(heard, key=lambda peer: peer.match_index).node_id if heard else None

    def tick(self, now_ms: float) -> None:
        """Time has passed."""
        if self.transferring and now_ms >= self._transfer_until_ms:
            self._transfer_to = None
        if now_ms >= self._beat_at_ms:
            self._beat_at_ms = now_ms + self._raft.timing.beat_ms
            for peer in self.peers.values():
                self._send_beat(peer)
            self._meet_members(now_ms)
            self._meet_disks()
            if self._raft.me.node_id in self._raft.leaving:
                self._raft.step_aside(now_ms)

    def hears_majority(self, now_ms: float) -> bool:
        """Whether a majority was heard of within an election timeout; who never spoke has as long from the start."""
        raft = self._raft
        since_ms = now_ms - raft.timing.election_ms

        def heard(voter: Voter) -> bool:
            if voter.admits(raft.me):
                return True
            peer = self.peers.get(voter.node_id)
            if peer is None or peer.heard_ms <= since_ms:
                return False
            return peer.member is None or voter.admits(peer.member)

        return has_majority(raft.voters.sets(raft.commit_index), heard)

    def answered(self, reply: AppendReply | BeatReply, now_ms: float) -> None:
        """A follower answered."""
        peer = self.peers.get(reply.sender.node_id)
        if peer is None:
            return
        peer.heard(reply.sender, now_ms)
        if isinstance(reply, BeatReply):
            if peer.match_index < self._log.last_index:
                # Something that was sent may be lost: begin again behind what it surely has.
                peer.next_index = peer.match_index + 1
                self._send_entries(peer, now_ms)
            return
        if not reply.accepted:
            if reply.refused_index > peer.match_index:
                meet = self._log.last_at_most(reply.index, reply.index_epoch)
                peer.next_index = max(peer.match_index + 1, meet + 1)
                self._send_entries(peer, now_ms)
            return
        if peer.accepted(min(reply.index, self._log.last_index)):
            committed = self._raft.commit_index
            self.advance_commit()
            self._hand_over()
            if self._raft.commit_index == committed and peer.next_index > self._log.last_index:
                # A slower one: what it has now was committed without it, and it need not wait for a beat to apply it.
                self._send_beat(peer)
        if peer.next_index <= self._log.last_index:
            self._send_entries(peer, now_ms)

    def advance_commit(self) -> None:
        """Commit what a majority has flushed, if it is of this epoch: older entries are committed along with it."""
        raft = self._raft
        index = index_of_majority(raft.voters.sets(raft.commit_index), self._flushed_by)
        if index > raft.commit_index and self._log.epoch_at(index) == raft.epoch:
            raft.commit_to(index)
            for peer in self.peers.values():
                # So that followers apply it now, and not with the next beat.
                if peer.match_index >= index:
                    self._send_beat(peer)

    def _flushed_by(self, voter: Voter) -> int:
        raft = self._raft
        if voter.admits(raft.me):
            return raft.flushed_index
        peer = self.peers.get(voter.node_id)
        known = peer is not None and peer.member is not None and voter.admits(peer.member)
        return peer.match_index if peer is not None and known else 0

    def _send_beat(self, peer: Peer) -> None:
        raft = self._raft
        disk_id = peer.member.disk_id if peer.member is not None else ""
        self._send(peer, Beat(raft.epoch, raft.me, min(raft.commit_index, peer.match_index), disk_id))

    def _send_entries(self, peer: Peer, now_ms: float = 0.0) -> None:
        log, raft = self._log, self._raft
        prev_index = peer.next_index - 1
        prev_epoch = log.epoch_at(prev_index)
        if prev_epoch is None:
            self._send_snapshot(peer, now_ms)
            return
        entries = log.slice(peer.next_index, bytes_max=QUORUM_APPEND_BYTES_MAX)
        request = AppendRequest(raft.epoch, raft.me, prev_index, prev_epoch, entries, raft.commit_index)
        self._send(peer, request)
        peer.next_index += len(entries)

    def _send_snapshot(self, peer: Peer, now_ms: float) -> None:
        if now_ms < peer.snapshot_until_ms:
            return
        peer.snapshot_until_ms = now_ms + self._raft.timing.election_ms
        self._send(peer, SnapshotRequest(self._raft.epoch, self._raft.me, self._log.snapshot))

    def _hand_over(self) -> None:
        peer = self.peers.get(self._transfer_to) if self._transfer_to is not None else None
        if peer is not None and peer.match_index == self._log.last_index:
            self._send(peer, TransferRequest(self._raft.epoch, self._raft.me))

    def _meet_members(self, now_ms: float) -> None:
        """Begin to send the log to nodes that shall be voters; end it with those that are none any more."""
        raft = self._raft
        voters = self._voting()
        for node_id in sorted((raft.joining | voters) - self.peers.keys() - {raft.me.node_id}):
            self.peers[node_id] = Peer(node_id, self._log.last_index + 1, now_ms)
        for node_id in self.peers.keys() - voters - raft.joining:
            del self.peers[node_id]

    def _voting(self) -> set[int]:
        """All whose votes may be needed: while a change of the voters is not committed, the old ones', too."""
        sets = self._raft.voters.sets(self._raft.commit_index)
        return {voter.node_id for voters in sets for voter in voters}

    def _meet_disks(self) -> None:
        """Write down who the voters are: which disks they have, when one is new (the first of a node, or a replaced one
        that has caught up), else who joins, having caught up, or leaves. One change at a time, and none before this
        leader has committed something."""
        raft = self._raft
        settled = raft.voters.changed_at <= raft.commit_index
        if not settled or self._log.epoch_at(raft.commit_index) != raft.epoch or self.transferring:
            return
        met: list[Voter] = []
        replaced = 0
        for voter in raft.voters.latest:
            now = raft.me if voter.node_id == raft.me.node_id else self.peers[voter.node_id].member
            if now is None or now == voter:
                met.append(voter)
            elif voter.disk_id == "":
                met.append(now)
            elif not replaced and self.peers[voter.node_id].match_index >= raft.commit_index:
                replaced += 1
                met.append(now)
            else:
                met.append(voter)
        if tuple(met) == raft.voters.latest:
            met = self._with_members(met)
        if tuple(met) != raft.voters.latest:
            self.append("voters", encode_voters(met))

    def _with_members(self, voters: list[Voter]) -> list[Voter]:
        """The voters with one more, or one less, if that is wished for. A leader that shall go hands over first."""
        raft = self._raft
        for voter in voters:
            if voter.node_id in raft.leaving and voter.node_id != raft.me.node_id:
                return [other for other in voters if other != voter]
        known = {voter.node_id for voter in voters}
        for node_id, peer in sorted(self.peers.items()):
            is_awaited = node_id in raft.joining and node_id not in known
            if is_awaited and peer.member is not None and peer.match_index >= raft.commit_index:
                return [*voters, peer.member]
        return voters

    def _send(self, peer: Peer, message: Message) -> None:
        self._raft.outbox.append(Outgoing(peer.node_id, message))
