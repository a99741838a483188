"""One voter: takes messages and time, changes its state, and says what to save and then what to send. Pure.

The protocol is Raft (Ongaro, Ousterhout 2014) with pre-votes, a leader that steps down when it no longer hears a
majority, snapshots, and the transfer of leadership. Invariants, each checked by the simulator:

- at most one leader per epoch;
- two logs that have an entry of the same index and epoch are equal up to it;
- what is committed is in the log of every later leader;
- epoch, vote and entries are flushed before a message that rests on them leaves (see `saving.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ringlog.consensus.leading import Leadership
from ringlog.consensus.messages import (
    AppendReply,
    AppendRequest,
    Beat,
    BeatReply,
    Entry,
    HardState,
    Message,
    Snapshot,
    SnapshotRequest,
    TransferRequest,
    Voter,
    VoteReply,
    VoteRequest,
)
from ringlog.consensus.raft_log import RaftLog
from ringlog.consensus.roles import Event, Role, role_after
from ringlog.consensus.saving import Outgoing, Released, Restored, Save
from ringlog.consensus.timing import Timing, jitter_ms
from ringlog.consensus.voters import VoterHistory, has_majority
from ringlog.errors import NotController, check


class Raft:
    """A voter of the quorum, or an observer that would be one."""

    leadership: type[Leadership] = Leadership

    def __init__(self, me: Voter, restored: Restored, *, timing: Timing, now_ms: float) -> None:
        check(bool(me.disk_id), "a voter knows its own disk")
        self.me = me
        self.timing = timing
        self.role = Role.FOLLOWER
        self.hard_state = restored.hard_state
        self.log = RaftLog(restored.snapshot, restored.entries)
        self.voters = VoterHistory(restored.snapshot.voters, restored.snapshot.last_index)
        self.voters.appended(restored.entries)
        self.leader_id: int | None = None
        self.commit_index = restored.snapshot.last_index
        """Everything up to here is committed. Not kept on disk: the leader will say it again."""
        self.flushed_index = self.log.last_index
        """Everything up to here is on this disk."""
        self.applied_index = restored.snapshot.last_index
        """Everything up to here was given out to be applied."""
        self._leadership: Leadership | None = None
        self._granted: dict[int, Voter] = {}
        """Who granted the vote, or pre-vote, that is being asked for."""
        self._forced = False
        self._attempts = 0
        self._leader_heard_ms = -timing.election_ms
        self._election_at_ms = now_ms
        self._wait_for_leader(now_ms)
        self.outbox: list[Outgoing] = []
        """What will be released with the next save."""
        self._unsaved_state = False
        self._unsaved_snapshot = False
        self._restored: Snapshot | None = None
        self._saving: Save | None = None
        self._saves = 0
        self.joining: frozenset[int] = frozenset()
        """Nodes that shall be voters, if this one leads: each is sent the log, and counts when it has caught up."""
        self.leaving: frozenset[int] = frozenset()
        """Voters that shall be none any more."""
        self._released = Released([], None, [])
        """What `saved` will give out."""

    @property
    def epoch(self) -> int:
        return self.hard_state.epoch

    @property
    def due_ms(self) -> float:
        """When `tick` must be called at the latest."""
        if self._leadership is not None:
            return self._leadership.due_ms
        return self._election_at_ms if self.voters.includes(self.me) else float("inf")

    # -- what comes in -----------------------------------------------------------------------------------------

    def tick(self, now_ms: float) -> None:
        """Time has passed."""
        if self._leadership is not None:
            if not self._leadership.hears_majority(now_ms):
                self._become_follower(Event.QUORUM_LOST, self.epoch, None, now_ms)
            else:
                self._leadership.tick(now_ms)
        elif now_ms >= self._election_at_ms and self.voters.includes(self.me):
            self._campaign(Event.SILENCE, now_ms)

    def propose(self, data: bytes) -> int:
        """Append data, if this voter leads; the index at which it will be committed, unless the leader changes."""
        leadership = self._leadership
        if leadership is None or leadership.transferring:
            raise NotController(f"node {self.me.node_id} does not lead the quorum")
        return leadership.append("data", data)

    def transfer(self, node_id: int, now_ms: float) -> None:
        """Let another voter lead, as soon as it has everything."""
        if self._leadership is None:
            raise NotController(f"node {self.me.node_id} does not lead the quorum")
        self._leadership.transfer(node_id, now_ms)

    def step_aside(self, now_ms: float) -> bool:
        """Let another voter lead. False: this one does not lead any more, or no other could. Ask until then."""
        leadership = self._leadership
        if leadership is None:
            return False
        if not leadership.transferring:
            heir = leadership.heir(now_ms)
            if heir is None:
                return False
            leadership.transfer(heir, now_ms)
        return True

    def wish(self, joining: Iterable[int], leaving: Iterable[int]) -> None:
        """Who shall vote, and who shall not any more: the leader changes the voters accordingly, one after another."""
        self.leaving = frozenset(leaving)
        self.joining = frozenset(joining) - self.leaving

    def compact(self, index: int, data: bytes) -> None:
        """Let `data` stand for all entries up to an index that was applied."""
        check(index <= self.applied_index, "only what was applied can be compacted")
        epoch = self.log.epoch_at(index)
        if epoch is None or index <= self.log.snapshot.last_index:
            return
        self.log.compact(Snapshot(index, epoch, self.voters.as_of(index), data))
        self.voters.compacted(index)
        self._unsaved_snapshot = True

    def lost(self, node_id: int, now_ms: float) -> None:
        """The connection to a voter broke. Who follows it need not wait until silence proves that it is gone: it asks
        for an election soon, which the others grant if they hear nothing from it either."""
        if self._leadership is None and node_id == self.leader_id:
            self._leader_heard_ms = now_ms - self.timing.election_ms
            # All of them see it in the same moment: they ask one after another, or none would get a majority.
            others = sorted({voter.node_id for voter in self.voters.latest} - {node_id})
            place = others.index(self.me.node_id) if self.me.node_id in others else len(others)
            soon_ms = self.timing.beat_ms * (0.2 + 0.3 * place)
            self._election_at_ms = min(self._election_at_ms, now_ms + soon_ms)

    def receive(self, message: Message, now_ms: float) -> None:
        """A message came from another voter."""
        if message.epoch > self.epoch:
            if not self._rises_to(message, now_ms):
                return
        elif message.epoch < self.epoch:
            self._answer_old(message)
            return
        match message:
            case VoteRequest():
                self._judge_candidate(message, now_ms)
            case VoteReply():
                self._count_vote(message, now_ms)
            case AppendRequest() | Beat() | SnapshotRequest():
                self._follow(message, now_ms)
                if isinstance(message, AppendRequest):
                    self._take_entries(message)
                elif isinstance(message, SnapshotRequest):
                    self._take_snapshot(message)
                else:
                    self.commit_to(message.commit_index if message.disk_id == self.me.disk_id else 0)
                    self._send(message.sender, BeatReply(self.epoch, self.me))
            case AppendReply() | BeatReply():
                if self._leadership is not None:
                    self._leadership.answered(message, now_ms)
            case TransferRequest():
                if self.voters.includes(self.me) and self.role in (Role.FOLLOWER, Role.PRE_CANDIDATE):
                    self._campaign(Event.TRANSFER, now_ms)

    # -- what goes out -----------------------------------------------------------------------------------------

    def take(self) -> Save | None:
        """What to save next; None: there is nothing to save, send or apply. One save is under way at a time."""
        if self._saving is not None:
            return None
        upto = min(self.commit_index, self.flushed_index)
        unsaved = self._unsaved_entries()
        news = self.outbox or unsaved or self._unsaved_state or self._unsaved_snapshot
        if not news and upto <= self.applied_index:
            return None
        self._saves += 1
        self._saving = Save(
            self._saves,
            self.hard_state if self._unsaved_state else None,
            self.log.snapshot if self._unsaved_snapshot else None,
            unsaved,
        )
        self._unsaved_state = self._unsaved_snapshot = False
        self._released = Released(self.outbox, self._restored, [])
        self.outbox, self._restored = [], None
        return self._saving

    def saved(self, save: Save) -> Released:
        """Everything in `save` is flushed: this may be told now."""
        check(self._saving is not None and save.number == self._saving.number, "saves are answered in order")
        self._saving = None
        if save.snapshot is not None:
            self.flushed_index = max(self.flushed_index, save.snapshot.last_index)
        if save.entries:
            last = save.entries[-1]
            if self.log.epoch_at(last.index) == last.epoch:
                self.flushed_index = max(self.flushed_index, last.index)
        if self._leadership is not None:
            self._leadership.advance_commit()
        released = self._released
        upto = min(self.commit_index, self.flushed_index)
        if self._restored is None and upto > self.applied_index:
            entries = self.log.slice(self.applied_index + 1)
            released.committed.extend(entries[: upto - self.applied_index])
            self.applied_index = upto
        return released

    def _unsaved_entries(self) -> tuple[Entry, ...]:
        if self._unsaved_snapshot:
            return self.log.slice(self.log.snapshot.last_index + 1)
        return self.log.slice(self.flushed_index + 1)

    def _send(self, to: Voter | int, message: Message) -> None:
        self.outbox.append(Outgoing(to if isinstance(to, int) else to.node_id, message))

    # -- epochs and roles --------------------------------------------------------------------------------------

    def _rises_to(self, message: Message, now_ms: float) -> bool:
        """Somebody is in a higher epoch: go there, unless that would only disturb. False: do no more with it."""
        if isinstance(message, VoteRequest):
            if not message.forced and self._hears_leader(now_ms):
                # A voter that lost touch must not depose a leader that the others still hear.
                return False
            if message.pre:
                return True
        if isinstance(message, VoteReply) and message.pre and message.granted:
            return True
        leads = isinstance(message, AppendRequest | Beat | SnapshotRequest)
        leader_id = message.sender.node_id if leads else None
        self._become_follower(Event.HIGHER_EPOCH, message.epoch, leader_id, now_ms)
        return True

    def _answer_old(self, message: Message) -> None:
        """A message of an epoch that is over: tell its sender, if it believes to lead or would."""
        match message:
            case VoteRequest():
                self._send(message.sender, VoteReply(self.epoch, self.me, granted=False, pre=message.pre))
            case AppendRequest() | Beat() | SnapshotRequest():
                self._send(message.sender, BeatReply(self.epoch, self.me))
            case _:
                return  # an answer to a question that nobody asks any more

    def _hears_leader(self, now_ms: float) -> bool:
        if self._leadership is not None:
            return True
        return self.leader_id is not None and now_ms - self._leader_heard_ms < self.timing.election_ms

    def _become_follower(self, event: Event, epoch: int, leader_id: int | None, now_ms: float) -> None:
        self.role = role_after(self.role, event)
        if epoch > self.epoch:
            self._set_hard_state(HardState(epoch))
        self.leader_id = leader_id
        self._leadership = None
        self._granted = {}
        self._wait_for_leader(now_ms)

    def _set_hard_state(self, state: HardState) -> None:
        check(state.epoch >= self.epoch, "epochs never fall")
        self.hard_state = state
        self._unsaved_state = True

    def _wait_for_leader(self, now_ms: float) -> None:
        alone = len(self.voters.latest) == 1 and self.voters.includes(self.me)
        self._attempts += 1
        spread_ms = jitter_ms(self.me.node_id, self.epoch, self._attempts, self.timing.election_ms)
        self._election_at_ms = now_ms if alone else now_ms + self.timing.election_ms + spread_ms

    # -- elections ---------------------------------------------------------------------------------------------

    def _campaign(self, event: Event, now_ms: float) -> None:
        """Ask for pre-votes, or at once for votes when the leader asked for it."""
        self.role = role_after(self.role, event)
        self.leader_id = None
        self._forced = event is Event.TRANSFER
        self._ask_for_votes(now_ms)

    def _ask_for_votes(self, now_ms: float) -> None:
        pre = self.role is Role.PRE_CANDIDATE
        if not pre:
            self._set_hard_state(HardState(self.epoch + 1, self.me))
        self._granted = {self.me.node_id: self.me}
        self._wait_for_leader(now_ms)
        epoch = self.epoch + 1 if pre else self.epoch
        request = VoteRequest(epoch, self.me, self.log.last_index, self.log.last_epoch, pre, self._forced)
        for node_id in self._others():
            self._send(node_id, request)
        self._look_at_votes(now_ms)

    def _others(self) -> Sequence[int]:
        ids = {voter.node_id for voters in self.voters.sets(self.commit_index) for voter in voters}
        return sorted(ids - {self.me.node_id})

    def _judge_candidate(self, request: VoteRequest, now_ms: float) -> None:
        newer = self.log.up_to_date(request.last_index, request.last_epoch)
        if request.pre:
            granted = newer and request.epoch > self.epoch and not self._hears_leader(now_ms)
            epoch = request.epoch if granted else self.epoch
            self._send(request.sender, VoteReply(epoch, self.me, granted, pre=True))
            return
        granted = newer and self.hard_state.voted_for in (None, request.sender)
        if granted and self.hard_state.voted_for is None:
            self._set_hard_state(HardState(self.epoch, request.sender))
            self._wait_for_leader(now_ms)
        self._send(request.sender, VoteReply(self.epoch, self.me, granted, pre=False))

    def _count_vote(self, reply: VoteReply, now_ms: float) -> None:
        wanted = Role.PRE_CANDIDATE if reply.pre else Role.CANDIDATE
        if self.role is not wanted or not reply.granted:
            return
        if reply.epoch != (self.epoch + 1 if reply.pre else self.epoch):
            return
        self._granted[reply.sender.node_id] = reply.sender
        self._look_at_votes(now_ms)

    def _look_at_votes(self, now_ms: float) -> None:
        if not has_majority(self.voters.sets(self.commit_index), self._has_vote_of):
            return
        if self.role is Role.PRE_CANDIDATE:
            self.role = role_after(self.role, Event.WOULD_WIN)
            self._ask_for_votes(now_ms)
            return
        self.role = role_after(self.role, Event.WON)
        self.leader_id = self.me.node_id
        self._leadership = self.leadership(self, now_ms)

    def _has_vote_of(self, voter: Voter) -> bool:
        member = self._granted.get(voter.node_id)
        return member is not None and voter.admits(member)

    # -- following ---------------------------------------------------------------------------------------------

    def _follow(self, message: AppendRequest | Beat | SnapshotRequest, now_ms: float) -> None:
        check(self.role is not Role.LEADER, "an epoch has one leader")
        self.role = role_after(self.role, Event.LEADER_HEARD)
        self.leader_id = message.sender.node_id
        self._leader_heard_ms = now_ms
        self._granted = {}
        self._wait_for_leader(now_ms)

    def _take_entries(self, request: AppendRequest) -> None:
        log = self.log
        end = request.prev_index + len(request.entries)
        if end <= self.commit_index:
            # A late one: all of it is committed here, so all of it is equal here.
            self._accept(request.sender, self.commit_index)
            return
        if not self._meets(request):
            meet = log.last_at_most(request.prev_index, request.prev_epoch)
            refusal = AppendReply(
                self.epoch, self.me, False, meet, log.epoch_at(meet) or 0, refused_index=request.prev_index
            )
            self._send(request.sender, refusal)
            return
        new = request.entries[log.first_conflict(request.entries) :]
        if new:
            self._cut(new[0].index - 1)
            log.append(new)
            self.voters.appended(new)
        self.commit_to(min(request.commit_index, end))
        self._accept(request.sender, end)

    def _meets(self, request: AppendRequest) -> bool:
        """Whether this log and the leader's are equal where the entries begin."""
        if request.prev_index < self.log.snapshot.last_index:
            return True
        return self.log.epoch_at(request.prev_index) == request.prev_epoch

    def _cut(self, last_index: int) -> None:
        if last_index >= self.log.last_index:
            return
        check(last_index >= self.commit_index, "what is committed is never cut")
        self.log.truncate(last_index)
        self.voters.truncated(last_index)
        self.flushed_index = min(self.flushed_index, last_index)

    def _take_snapshot(self, request: SnapshotRequest) -> None:
        snapshot = request.snapshot
        if snapshot.last_index > self.commit_index:
            if self.log.epoch_at(snapshot.last_index) == snapshot.last_epoch:
                self.commit_to(snapshot.last_index)
            else:
                self.log.restart(snapshot)
                self.voters = VoterHistory(snapshot.voters, snapshot.last_index)
                self.commit_index = self.applied_index = self.flushed_index = snapshot.last_index
                self._unsaved_snapshot = True
                self._restored = snapshot
        self._accept(request.sender, self.commit_index)

    def _accept(self, leader: Voter, index: int) -> None:
        self._send(leader, AppendReply(self.epoch, self.me, True, index))

    def commit_to(self, index: int) -> None:
        """Everything up to an index is committed."""
        if index > self.commit_index:
            check(index <= self.log.last_index, "nothing is committed that is not there")
            self.commit_index = index
