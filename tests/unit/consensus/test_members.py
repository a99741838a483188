"""Voters that come and go: who is sent the log, who counts and since when, and who is written down no more."""

from __future__ import annotations

from ringlog.consensus.messages import AppendReply, AppendRequest, TransferRequest, Voter
from ringlog.consensus.raft import Raft
from tests.unit.consensus.test_raft import TIMING, VOTERS, leader, settle

NEW = Voter(4, "d4")


def led(now_ms: float = 1_001.0) -> Raft:
    """A leader of three that has committed something."""
    raft = leader()
    settle(raft)
    for voter in VOTERS[1:]:
        raft.receive(AppendReply(1, voter, True, raft.log.last_index), now_ms)
    settle(raft)
    assert raft.commit_index == raft.log.last_index
    return raft


def beat(raft: Raft, now_ms: float) -> list[int]:
    """Let the time of a beat pass; to whom entries were sent."""
    raft.tick(now_ms)
    return [to for to, message in settle(raft).messages if isinstance(message, AppendRequest)]


def test_a_node_that_joins_is_sent_the_log_and_votes_when_it_has_caught_up():
    raft = led()
    raft.wish(joining=(1, 2, 3, 4), leaving=())
    beat(raft, 1_025)
    assert raft.voters.latest == VOTERS, "it was not heard of yet"
    raft.receive(AppendReply(1, NEW, False, 0, 0, refused_index=raft.log.last_index), 1_026)
    assert 4 in [to for to, m in settle(raft).messages if isinstance(m, AppendRequest)]
    beat(raft, 1_046)
    assert raft.voters.latest == VOTERS, "it has nothing yet"
    raft.receive(AppendReply(1, NEW, True, raft.log.last_index), 1_047)
    assert raft.commit_index == raft.log.last_index, "nothing waited for it"
    beat(raft, 1_067)
    assert raft.voters.latest == (*VOTERS, NEW)
    changed_at = raft.log.last_index
    raft.receive(AppendReply(1, NEW, True, changed_at), 1_068)
    assert raft.commit_index < changed_at, "a majority of the old voters must have it, too"
    raft.receive(AppendReply(1, VOTERS[1], True, changed_at), 1_069)
    assert raft.commit_index == changed_at


def test_a_voter_that_leaves_counts_no_more_when_the_others_have_written_that_down():
    raft = led()
    raft.wish(joining=(1, 2, 3), leaving=(3,))
    beat(raft, 1_025)
    assert raft.voters.latest == VOTERS[:2]
    raft.receive(AppendReply(1, VOTERS[2], True, raft.log.last_index), 1_026)
    assert raft.commit_index < raft.log.last_index, "of the two that stay, both are needed"
    raft.receive(AppendReply(1, VOTERS[1], True, raft.log.last_index), 1_027)
    assert raft.commit_index == raft.log.last_index
    settle(raft)
    beat(raft, 1_047)
    raft.propose(b"news")
    assert {to for to, _ in settle(raft).messages} == {2}, "it is sent nothing any more"


def test_one_change_is_made_at_a_time():
    raft = led()
    raft.wish(joining=(1, 2, 3), leaving=(2, 3))
    beat(raft, 1_025)
    once = raft.voters.latest
    beat(raft, 1_045)
    assert len(once) == 2 and raft.voters.latest == once, "the first is not committed yet"


def test_a_leader_that_leaves_hands_over_and_never_to_who_is_no_voter():
    raft = led()
    raft.wish(joining=(1, 2, 3, 4), leaving=(1,))
    beat(raft, 1_025)
    raft.receive(AppendReply(1, NEW, True, raft.log.last_index), 1_026)
    for voter in VOTERS[1:]:
        raft.receive(AppendReply(1, voter, True, raft.log.last_index), 1_027)
    raft.tick(1_027 + TIMING.beat_ms)
    sent = settle(raft).messages
    for voter in VOTERS[1:]:
        raft.receive(AppendReply(1, voter, True, raft.log.last_index), 1_050)
    sent += settle(raft).messages
    heirs = {to for to, message in sent if isinstance(message, TransferRequest)}
    assert heirs and heirs <= {2, 3}
    assert raft.me in raft.voters.latest, "it does not send itself away"
