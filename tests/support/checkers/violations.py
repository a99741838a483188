"""What the judges can find: the rules that must hold whatever breaks, and one violation for each breach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Rule(Enum):
    """What must hold: a stable code, and a sentence for people."""

    # C1
    LOST = ("lost", "a record that was acknowledged, or read, stays in the log")
    TWO_OFFSETS = ("two-offsets", "a record stands at one offset")
    TWO_VALUES = ("two-values", "an offset holds one record")
    INVENTED = (
        "invented",
        "every record in the log was sent, with the bytes that are there, to that partition",
    )
    PRODUCER_ORDER = (
        "producer-order",
        "records of one producer stand in a partition in the order of sending",
    )
    GOING_BACK = ("going-back", "a consumer's offsets only increase")
    SKIPPED = ("skipped", "a consumer gets every offset")
    WEAK_ACK = ("weak-ack", "an acknowledgement reports the durability that was asked for")
    UNREAD = ("unread", "a partition with acknowledged records is read from start to end when all is over")
    # C2
    DISK = ("disk", "the files of a partition hold every invariant of the log")
    NO_PARTITION = ("no-partition", "every partition that is expected has a directory with a log")
    REPLICAS = ("replicas", "the replicas of a partition hold the same batches, byte for byte")
    # C3
    SHARED_MEMORY = ("shared-memory", "no shared memory is left behind")
    PROCESS = ("process", "no process is left behind")
    SOCKET = ("socket", "no socket is left behind")
    TEMP_FILE = ("temp-file", "no temporary file is left behind")

    def __init__(self, code: str, sentence: str) -> None:
        self.code = code
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a rule does not hold.

    >>> str(Violation(Rule.PROCESS, "/data", "pid 7"))
    '/data: no process is left behind; found pid 7 [process]'
    """

    rule: Rule
    subject: str
    found: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.rule.sentence}; found {self.found} [{self.rule.code}]"


def report(violations: Sequence[Violation], shown_max: int = 20) -> str:
    """Violations for a test's message: the first ones, and how many there are of each rule.

    >>> report([])
    'no violations'
    """
    if not violations:
        return "no violations"
    counts: dict[str, int] = {}
    for violation in violations:
        counts[violation.rule.code] = counts.get(violation.rule.code, 0) + 1
    lines = [f"{len(violations)} violations: " + ", ".join(f"{n} {code}" for code, n in counts.items())]
    lines += [f"  {violation}" for violation in violations[:shown_max]]
    if len(violations) > shown_max:
        lines.append(f"  and {len(violations) - shown_max} more")
    return "\n".join(lines)
