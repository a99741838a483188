"""What a check of a partition's files can find: the rules that must hold, and one finding for each breach."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class Severity(StrEnum):
    """A violation should never be seen; a note says what is there, or what the next open will do."""

    VIOLATION = "violation"
    NOTE = "note"


class Rule(Enum):
    """What must hold: a stable code for scripts, and a sentence for people."""

    READABLE = ("readable", "every file can be read")
    KNOWN_NAME = ("known-name", "every file has a name that ringlog gives")
    WHOLE_BATCHES = ("whole-batches", "a segment is whole batches with right CRCs up to its end")
    RECORDS = ("records", "a batch holds the records that its header says")
    TIMESTAMPS = ("timestamps", "a batch's max_timestamp is the highest timestamp of its records")
    DENSE_OFFSETS = ("dense-offsets", "offsets follow one another without a gap")
    RISING_OFFSETS = ("rising-offsets", "offsets only increase")
    SEGMENT_NAME = ("segment-name", "a segment is named by its first offset")
    LEADER_EPOCHS = ("leader-epochs", "leader epochs never fall")
    END = ("end", "the log ends at its last whole batch")
    INDEX_ORDER = ("index-order", "the entries of an offset index increase")
    INDEX_POINTS = ("index-points", "an offset index entry names the start and the last offset of a batch")
    TIME_INDEX_ORDER = ("time-index-order", "the entries of a time index increase")
    TIME_INDEX_TRUE = (
        "time-index-true",
        "a time index entry names the first batch with the highest timestamp",
    )
    STATE = ("state", "partition.state is there and can be read")
    CATALOGUE = ("catalogue", "partition.state lists every segment, one after another")
    SIZE = ("size", "a file is as long as partition.state says")
    CHECKSUM = ("checksum", "an index has the checksum that partition.state says")
    NEXT_OFFSET = ("next-offset", "a segment ends at the offset that partition.state says")
    MAX_TIMESTAMP = ("max-timestamp", "a segment has the highest timestamp that partition.state says")
    RECOVERY_POINT = ("recovery-point", "the recovery point lies between two batches")
    LOG_START = ("log-start", "the log start offset lies within the log")
    EPOCH_HISTORY = ("epoch-history", "partition.state has the leader epochs of the batches")
    SNAPSHOT = ("snapshot", "a snapshot of producers can be read and was taken where its name says")
    PRODUCERS = ("producers", "a snapshot has the producers' batches as the log has them")
    QUARANTINE = ("quarantine", "every segment is served")
    SET_ASIDE = ("set-aside", "what was set aside is kept, for people to look at and to delete")
    UNFINISHED = ("unfinished", "no replacement of a file is unfinished")
    INDEXED = ("indexed", "a segment has its two indexes")
    ORPHAN = ("orphan", "an index belongs to a segment")
    PREALLOCATED = ("preallocated", "no space is reserved behind the log")

    def __init__(self, code: str, sentence: str) -> None:
        self.code = code
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a rule does not hold.

    >>> str(Finding(Rule.LEADER_EPOCHS, "a-0/00000000000000000000.log", 4096, "3 after 5"))
    'a-0/00000000000000000000.log:4096: violation: leader epochs never fall; found 3 after 5 [leader-epochs]'
    """

    rule: Rule
    path: str
    byte: int | None
    """Where in the file; None where no byte stands for it."""
    found: str
    severity: Severity = Severity.VIOLATION

    @property
    def is_violation(self) -> bool:
        return self.severity is Severity.VIOLATION

    def __str__(self) -> str:
        place = self.path if self.byte is None else f"{self.path}:{self.byte}"
        return f"{place}: {self.severity}: {self.rule.sentence}; found {self.found} [{self.rule.code}]"


def note(rule: Rule, path: str, byte: int | None, found: str) -> Finding:
    """A finding that is no violation."""
    return Finding(rule, path, byte, found, Severity.NOTE)
