"""A voter, step by step: what it saves, what it may then send, and whom it believes."""

from __future__ import annotations

import pytest

from ringlog.consensus.messages import (
    AppendReply,
    AppendRequest,
    Beat,
    Entry,
    HardState,
    Snapshot,
    TransferRequest,
    Voter,
    VoteReply,
    VoteRequest,
    decode_message,
    encode_message,
)
from ringlog.consensus.raft import Raft
from ringlog.consensus.roles import TRANSITIONS, Event, Role, role_after
from ringlog.consensus.saving import Released, Restored
from ringlog.consensus.timing import Timing, jitter_ms
from ringlog.errors import CorruptFrame, InvariantBroken, NotController

TIMING = Timing(election_ms=100, beat_ms=20)
VOTERS = tuple(Voter(node_id, f"d{node_id}") for node_id in (1, 2, 3))


def voter(node_id: int = 1, voters: tuple[Voter, ...] = VOTERS, **restored: object) -> Raft:
    found = {"hard_state": HardState(), "snapshot": Snapshot(0, 0, voters, b""), "entries": ()} | restored
    return Raft(Voter(node_id, f"d{node_id}"), Restored(**found), timing=TIMING, now_ms=0)  # type: ignore[arg-type]


def settle(raft: Raft) -> Released:
    """Save everything at once; all that was released."""
    messages, committed = [], []
    while (save := raft.take()) is not None:
        released = raft.saved(save)
        messages += released.messages
        committed += released.committed
    return Released(messages, None, committed)


def leader(now_ms: float = 0.0) -> Raft:
    raft = voter()
    raft.tick(now_ms + 1000)
    settle(raft)
    raft.receive(VoteReply(1, VOTERS[1], True, pre=True), now_ms + 1000)
    settle(raft)
    raft.receive(VoteReply(1, VOTERS[1], True, pre=False), now_ms + 1000)
    assert raft.role is Role.LEADER
    return raft


def test_nothing_is_given_out_before_it_is_saved():
    raft = voter(2)
    raft.receive(VoteRequest(1, VOTERS[0], 0, 0, pre=False), 1000)
    save = raft.take()
    assert save is not None and save.hard_state == HardState(1, VOTERS[0])
    assert raft.take() is None, "one save at a time"
    (reply,) = raft.saved(save).messages
    assert reply == (1, VoteReply(1, VOTERS[1], True, pre=False))


def test_a_save_is_answered_by_its_own_number():
    raft = voter(2)
    raft.receive(VoteRequest(1, VOTERS[0], 0, 0, pre=False), 1000)
    save = raft.take()
    assert save is not None
    raft.saved(save)
    with pytest.raises(InvariantBroken):
        raft.saved(save)


def test_one_vote_per_epoch_also_after_a_restart():
    raft = voter(2, hard_state=HardState(4, VOTERS[0]))
    raft.receive(VoteRequest(4, VOTERS[2], 9, 3, pre=False), 1000)
    ((_, reply),) = settle(raft).messages
    assert isinstance(reply, VoteReply) and not reply.granted


def test_a_candidate_that_lacks_entries_gets_no_vote():
    raft = voter(2, entries=(Entry(1, 1, "data"), Entry(2, 2, "data")), hard_state=HardState(2))
    for last_index, last_epoch, granted in ((5, 1, False), (1, 2, False), (2, 2, True)):
        raft.receive(VoteRequest(raft.epoch + 1, VOTERS[0], last_index, last_epoch, pre=False), 5000)
        ((_, reply),) = settle(raft).messages
        assert isinstance(reply, VoteReply) and reply.granted is granted


def test_a_voter_that_lost_touch_disturbs_nobody():
    raft = voter(2)
    raft.receive(AppendRequest(1, VOTERS[0], 0, 0, (Entry(1, 1, "start"),), 0), 1000)
    settle(raft)
    raft.receive(VoteRequest(9, VOTERS[2], 9, 9, pre=True), 1050)
    raft.receive(VoteRequest(9, VOTERS[2], 9, 9, pre=False), 1050)
    assert settle(raft).messages == [] and raft.epoch == 1
    raft.receive(VoteRequest(9, VOTERS[2], 9, 9, pre=False, forced=True), 1050)
    assert raft.epoch == 9, "unless the leader itself asked for it"


def test_pre_votes_change_no_epoch():
    raft = voter()
    raft.tick(1000)
    save = raft.take()
    assert save is not None and save.hard_state is None
    assert raft.role is Role.PRE_CANDIDATE and raft.epoch == 0


def test_a_leader_commits_what_a_majority_has_flushed():
    raft = leader()
    index = raft.propose(b"x")
    raft.receive(AppendReply(1, VOTERS[1], True, index), 1001)
    assert raft.commit_index == 0, "its own disk has not got it"
    released = settle(raft)
    assert raft.commit_index == index
    assert [entry.data for entry in released.committed] == [b"", b"x"]


def test_entries_of_an_earlier_epoch_are_not_committed_by_counting():
    raft = voter(entries=(Entry(1, 1, "data", b"old"),), hard_state=HardState(1))
    raft.tick(1000)
    raft.receive(VoteReply(2, VOTERS[1], True, pre=True), 1000)
    raft.receive(VoteReply(2, VOTERS[1], True, pre=False), 1000)
    settle(raft)
    for member in VOTERS[1:]:
        raft.receive(AppendReply(2, member, True, 1), 1001)
    settle(raft)
    assert raft.commit_index == 0, "another leader, of epoch 1 or 2 elsewhere, may still replace it"
    raft.receive(AppendReply(2, VOTERS[1], True, 2), 1002)
    assert [entry.index for entry in settle(raft).committed] == [1, 2]


def test_a_leader_does_not_count_the_answer_of_another_disk():
    raft = leader()
    index = raft.propose(b"x")
    settle(raft)
    raft.receive(AppendReply(1, Voter(2, "new disk"), True, index), 1001)
    settle(raft)
    assert raft.commit_index == 0
    raft.receive(AppendReply(1, VOTERS[2], True, index), 1001)
    settle(raft)
    assert raft.commit_index == index


def test_a_leader_that_hears_no_majority_steps_down():
    raft = leader()
    settle(raft)
    raft.tick(1099)
    assert raft.role is Role.LEADER
    raft.tick(1101)
    assert raft.role is Role.FOLLOWER
    with pytest.raises(NotController):
        raft.propose(b"late")


def test_a_replaced_disk_votes_again_once_it_has_caught_up():
    raft = leader()
    settle(raft)
    raft.receive(AppendReply(1, VOTERS[2], True, raft.log.last_index), 1001)
    settle(raft)
    stranger = Voter(2, "new disk")
    raft.receive(AppendReply(1, stranger, False, 0, 0, refused_index=1), 1002)
    raft.tick(1025)
    assert raft.voters.latest == VOTERS, "it has nothing yet"
    raft.receive(AppendReply(1, stranger, True, raft.log.last_index), 1030)
    raft.receive(AppendReply(1, VOTERS[2], True, raft.log.last_index), 1030)
    raft.tick(1050)
    settle(raft)
    assert stranger in raft.voters.latest
    changed_at = raft.log.last_index
    raft.receive(AppendReply(1, stranger, True, changed_at), 1051)
    assert raft.commit_index < changed_at, "a majority of the old voters must have it too"
    raft.receive(AppendReply(1, VOTERS[2], True, changed_at), 1052)
    assert raft.commit_index == changed_at


def test_logs_that_differ_are_cut_where_they_part():
    mine = (Entry(1, 1, "data", b"a"), Entry(2, 1, "data", b"b"), Entry(3, 1, "data", b"c"))
    raft = voter(2, entries=mine, hard_state=HardState(1))
    theirs = Entry(4, 3, "data", b"d")
    raft.receive(AppendRequest(3, VOTERS[0], 3, 2, (theirs,), 0), 1000)
    ((_, reply),) = settle(raft).messages
    assert isinstance(reply, AppendReply) and not reply.accepted and reply.index == 3
    new = (Entry(2, 2, "data", b"B"), Entry(3, 2, "data", b"C"), theirs)
    raft.receive(AppendRequest(3, VOTERS[0], 1, 1, new, 2), 1000)
    save = raft.take()
    assert save is not None and save.entries == new
    assert [entry.data for entry in raft.saved(save).committed] == [b"a", b"B"]


def test_leadership_moves_on_request_and_without_waiting():
    raft = leader()
    settle(raft)
    raft.transfer(2, 1001)
    with pytest.raises(NotController):
        raft.propose(b"not now")
    raft.receive(AppendReply(1, VOTERS[1], True, raft.log.last_index), 1002)
    assert (2, TransferRequest(1, VOTERS[0])) in settle(raft).messages
    heir = voter(2, entries=(Entry(1, 1, "start"),), hard_state=HardState(1))
    heir.receive(TransferRequest(1, VOTERS[0]), 1003)
    requests = [message for _, message in settle(heir).messages]
    assert all(
        isinstance(message, VoteRequest) and message.forced and not message.pre for message in requests
    )
    assert heir.epoch == 2


def test_a_leader_steps_aside_for_the_one_that_has_most_of_those_that_are_heard():
    raft = leader()
    settle(raft)
    assert not raft.step_aside(1000), "nobody has answered since it leads: there may be no other"
    raft.receive(AppendReply(1, VOTERS[1], True, 0), 1001)
    raft.receive(AppendReply(1, VOTERS[2], True, raft.log.last_index), 1001)
    assert raft.step_aside(1002) and raft.step_aside(1003)
    assert [to for to, message in settle(raft).messages if isinstance(message, TransferRequest)] == [3]
    assert not voter(2).step_aside(1002), "it does not lead"


def test_who_loses_the_connection_to_its_leader_asks_for_an_election_soon():
    for node_id in (2, 3):
        raft = voter(node_id)
        raft.receive(AppendRequest(1, VOTERS[0], 0, 0, (Entry(1, 1, "start"),), 0), 1000)
        settle(raft)
        raft.lost(5 - node_id, 1001)
        assert raft.due_ms >= 1000 + TIMING.election_ms, "another follower's connection is of no matter"
        raft.lost(1, 1001)
        assert 1001 < raft.due_ms < 1001 + 2 * TIMING.beat_ms
        raft.receive(VoteRequest(2, VOTERS[4 - node_id], 1, 1, pre=True), 1002)
        ((_, reply),) = settle(raft).messages
        assert isinstance(reply, VoteReply) and reply.granted, "and grants one to others that lost it"


def test_those_who_lost_the_same_leader_ask_one_after_another():
    due = []
    for node_id in (2, 3):
        raft = voter(node_id)
        raft.receive(AppendRequest(1, VOTERS[0], 0, 0, (Entry(1, 1, "start"),), 0), 1000)
        raft.lost(1, 1001)
        due.append(raft.due_ms)
    assert due[1] - due[0] >= TIMING.beat_ms / 4, "or they would split the votes"


def test_a_leader_that_is_heard_again_after_a_broken_connection_goes_on():
    raft = voter(2)
    raft.receive(AppendRequest(1, VOTERS[0], 0, 0, (Entry(1, 1, "start"),), 0), 1000)
    raft.lost(1, 1001)
    raft.receive(Beat(1, VOTERS[0], 0, "d2"), 1005)
    assert raft.due_ms >= 1005 + TIMING.election_ms and raft.leader_id == 1
    lead = leader()
    lead.lost(2, 1001)
    assert lead.role is Role.LEADER, "a leader goes by whom it hears"


def test_a_transfer_that_does_not_come_about_is_given_up():
    raft = leader()
    settle(raft)
    raft.transfer(2, 1001)
    raft.receive(AppendReply(1, VOTERS[2], True, 1), 1090)
    raft.tick(1110)
    assert raft.propose(b"again") == 2


def test_a_snapshot_stands_for_what_it_replaces():
    raft = leader()
    last = raft.propose(b"x")
    raft.receive(AppendReply(1, VOTERS[1], True, last), 1001)
    settle(raft)
    raft.compact(last, b"state")
    save = raft.take()
    assert save is not None and save.snapshot == Snapshot(last, 1, VOTERS, b"state") and save.entries == ()
    raft.saved(save)
    raft.receive(AppendReply(1, VOTERS[2], False, 0, 0, refused_index=last), 1002)
    (sent,) = [message for to, message in settle(raft).messages if to == 3]
    behind = voter(3)
    behind.receive(sent, 1003)
    save = behind.take()
    assert save is not None and save.snapshot is not None and save.snapshot.data == b"state"
    released = behind.saved(save)
    assert released.restored is not None and behind.commit_index == last


def test_a_snapshot_names_the_voters_of_its_own_index():
    raft = leader()
    data_at = raft.propose(b"x")
    settle(raft)
    raft.receive(AppendReply(1, Voter(2, "new disk"), True, data_at), 1001)
    raft.receive(AppendReply(1, VOTERS[2], True, data_at), 1001)
    raft.tick(1025)
    settle(raft)
    for member in (Voter(2, "new disk"), VOTERS[2]):
        raft.receive(AppendReply(1, member, True, raft.log.last_index), 1030)
    settle(raft)
    assert raft.commit_index == raft.log.last_index == data_at + 1
    raft.compact(data_at, b"state")
    assert raft.log.snapshot.voters == VOTERS
    assert Voter(2, "new disk") in raft.voters.latest


def test_a_beat_for_another_disk_commits_nothing():
    raft = voter(2, entries=(Entry(1, 1, "data"),), hard_state=HardState(1))
    raft.receive(Beat(1, VOTERS[0], 1, "the disk before"), 1000)
    assert raft.commit_index == 0
    raft.receive(Beat(1, VOTERS[0], 1, "d2"), 1000)
    assert raft.commit_index == 1


def test_a_single_voter_leads_at_once():
    raft = voter(voters=(Voter(1, ""),))
    raft.tick(0)
    index = raft.propose(b"x")
    assert [entry.index for entry in settle(raft).committed] == [1, index]


def test_what_is_not_in_the_table_does_not_happen():
    assert role_after(Role.LEADER, Event.QUORUM_LOST) is Role.FOLLOWER
    with pytest.raises(InvariantBroken):
        role_after(Role.LEADER, Event.WON)
    assert {role for role, _ in TRANSITIONS} == set(Role)


def test_voters_wait_for_different_times():
    waits = {jitter_ms(node_id, 5, 1, 100) for node_id in range(1, 8)}
    assert len(waits) == 7 and all(0 <= wait < 100 for wait in waits)


def test_messages_survive_the_wire_and_garbage_does_not():
    message = AppendRequest(3, VOTERS[0], 1, 1, (Entry(2, 3, "data", b"x"),), 1)
    assert decode_message(encode_message(message)) == message
    for bad in (b"", b"\x90", encode_message(message)[:-3], b"\x93\xa6append?\xff"):
        with pytest.raises(CorruptFrame):
            decode_message(bad)


@pytest.mark.parametrize(
    "entries",
    [
        (Entry(3, 3, "data"),),
        (Entry(2, 0, "data"),),
        (Entry(2, 4, "data"),),
        (Entry(2, 3, "data"), Entry(2, 3, "data")),
        (Entry(2, 3, "voters", b"\x90"),),
        (Entry(2, 3, "voters", b"\xc1"),),
    ],
)
def test_entries_that_no_leader_would_send_are_refused_at_the_door(entries: tuple[Entry, ...]):
    with pytest.raises(CorruptFrame):
        decode_message(encode_message(AppendRequest(3, VOTERS[0], 1, 1, entries, 1)))
