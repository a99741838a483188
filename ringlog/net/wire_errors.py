"""Errors on the wire: codes to exceptions and back, and the numbers that stand in the rows of replies."""

from __future__ import annotations

from ringlog import errors
from ringlog.errors import CorruptInput, RinglogError
from ringlog.net.messages import ErrorReply

_NUMBERED: tuple[type[RinglogError], ...] = (
    errors.RinglogError,
    errors.InvariantBroken,
    errors.InvalidRequest,
    errors.CorruptBatch,
    errors.CorruptSegment,
    errors.BatchTooLarge,
    errors.OffsetOutOfRange,
    errors.PartitionFenced,
    errors.PartitionBusy,
    errors.DiskFull,
    errors.OutOfOrderSequence,
    errors.ProducerFenced,
    errors.UnknownTopic,
    errors.TopicExists,
    errors.StaleMetadata,
    errors.ShardUnavailable,
    errors.ControllerUnavailable,
    errors.RequestTimeout,
    errors.Overloaded,
    errors.LimitExceeded,
    errors.FetchSessionLost,
    errors.UnsupportedVersion,
    errors.CorruptFrame,
    errors.MemberFenced,
    errors.InstanceFenced,
    errors.UnknownGroup,
    errors.GroupNotEmpty,
    errors.CoordinatorLoading,
    errors.NotLeader,
    errors.PartitionOffline,
    errors.NotEnoughReplicas,
    errors.OffsetNotAvailable,
    errors.FencedLeaderEpoch,
    errors.UnknownLeaderEpoch,
    errors.ReplicaHalted,
    errors.NotController,
    errors.StaleBroker,
    errors.NotEnoughBrokers,
    errors.InvalidRecord,
)
"""In the order of their numbers, from 1 on: new ones are added at the end."""

NUMBERS: dict[str, int] = {kind.code: number for number, kind in enumerate(_NUMBERED, 1)}
_BY_CODE: dict[str, type[RinglogError]] = {kind.code: kind for kind in _NUMBERED}


def number_of(error: RinglogError) -> int:
    """The number for an error's row; that of INTERNAL for one that has none.

    >>> number_of(errors.OffsetOutOfRange("7"))
    7
    """
    return NUMBERS.get(error.code, 1)


def error_by_number(number: int, message: str) -> RinglogError:
    """The error that a number in a row stands for."""
    known = 1 <= number <= len(_NUMBERED)
    return _make(_NUMBERED[number - 1] if known else RinglogError, message)


def error_reply(error: RinglogError) -> ErrorReply:
    """The body that tells a client of an error."""
    return ErrorReply(error.code, str(error), error.retriable)


def raised(reply: ErrorReply) -> RinglogError:
    """The error that a reply tells of, as a client raises it. One of a newer peer keeps its own word on retries.

    >>> raised(ErrorReply("OVERLOADED", "too much", True)).retriable
    True
    """
    kind = _BY_CODE.get(reply.code)
    if kind is None:
        kind = type("UnknownError", (RinglogError,), {"code": reply.code, "retriable": reply.retriable})
    return _make(kind, reply.message)


def _make(kind: type[RinglogError], message: str) -> RinglogError:
    if issubclass(kind, CorruptInput):
        # Its own constructor takes the field and the position, which the message has in words already.
        error = kind.__new__(kind)
        Exception.__init__(error, message)
        error.field, error.position, error.reason = "", 0, message
        return error
    return kind(message)
