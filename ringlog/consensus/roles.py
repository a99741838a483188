"""The roles of a voter and every way from one to another: what is not in the table must not happen. Pure."""

from __future__ import annotations

from enum import Enum

from ringlog.errors import InvariantBroken


class Role(Enum):
    """What a voter does at the moment."""

    FOLLOWER = "follower"
    """Takes entries from the leader, if there is one."""
    PRE_CANDIDATE = "pre-candidate"
    """Asks whether it would be elected. Its epoch stays: if the answer is no, nobody was disturbed."""
    CANDIDATE = "candidate"
    """Asks for votes in an epoch of its own."""
    LEADER = "leader"
    """Appends entries."""


class Event(Enum):
    """What makes a voter change its role."""

    SILENCE = "no leader was heard of for an election timeout"
    TRANSFER = "the leader asked this voter to take over"
    WOULD_WIN = "a majority would vote for it"
    WON = "a majority voted for it"
    HIGHER_EPOCH = "somebody is in a higher epoch"
    LEADER_HEARD = "somebody leads this epoch"
    QUORUM_LOST = "a majority was not heard of for an election timeout"


TRANSITIONS: dict[tuple[Role, Event], Role] = {
    (Role.FOLLOWER, Event.SILENCE): Role.PRE_CANDIDATE,
    (Role.FOLLOWER, Event.TRANSFER): Role.CANDIDATE,
    (Role.FOLLOWER, Event.HIGHER_EPOCH): Role.FOLLOWER,
    (Role.FOLLOWER, Event.LEADER_HEARD): Role.FOLLOWER,
    (Role.PRE_CANDIDATE, Event.SILENCE): Role.PRE_CANDIDATE,
    (Role.PRE_CANDIDATE, Event.WOULD_WIN): Role.CANDIDATE,
    (Role.PRE_CANDIDATE, Event.TRANSFER): Role.CANDIDATE,
    (Role.PRE_CANDIDATE, Event.HIGHER_EPOCH): Role.FOLLOWER,
    (Role.PRE_CANDIDATE, Event.LEADER_HEARD): Role.FOLLOWER,
    (Role.CANDIDATE, Event.SILENCE): Role.PRE_CANDIDATE,
    (Role.CANDIDATE, Event.WON): Role.LEADER,
    (Role.CANDIDATE, Event.HIGHER_EPOCH): Role.FOLLOWER,
    (Role.CANDIDATE, Event.LEADER_HEARD): Role.FOLLOWER,
    (Role.LEADER, Event.HIGHER_EPOCH): Role.FOLLOWER,
    (Role.LEADER, Event.QUORUM_LOST): Role.FOLLOWER,
}


def role_after(role: Role, event: Event) -> Role:
    """The role that follows.

    >>> role_after(Role.CANDIDATE, Event.WON).value
    'leader'
    """
    try:
        return TRANSITIONS[role, event]
    except KeyError:
        raise InvariantBroken(f"a {role.value} cannot take: {event.value}") from None
