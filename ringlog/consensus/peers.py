"""What a leader knows of each of its followers: how far it has come, and when it was last heard of. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringlog.consensus.messages import Voter


@dataclass(slots=True)
class Peer:
    """One follower, as the leader of an epoch sees it."""

    node_id: int
    next_index: int
    """The first entry that was not sent yet. Optimistic: moved by sending, taken back by a refusal."""
    heard_ms: float
    """When its last answer came."""
    member: Voter | None = None
    """Which disk answered; None until one did."""
    match_index: int = 0
    """Up to here its log is flushed and equal to the leader's. Only that disk's answers move it."""
    snapshot_until_ms: float = 0.0
    """It was sent a snapshot, and is sent no other before this time."""

    def heard(self, member: Voter, now_ms: float) -> None:
        """An answer came. Another disk than before has nothing of what that one had."""
        self.heard_ms = now_ms
        if self.member != member:
            self.member = member
            self.match_index = 0
            self.snapshot_until_ms = 0.0

    def accepted(self, index: int) -> bool:
        """It has everything up to an index; True when that is news."""
        news = index > self.match_index
        self.match_index = max(self.match_index, index)
        self.next_index = max(self.next_index, self.match_index + 1)
        return news
