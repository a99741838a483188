"""Violations that are planted into a good log, one at a time, and must be reported at their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ringlog.log.findings import Rule
from ringlog.log.verify import verify_partition
from tests.support.sample_logs import SampleLog, closed_log

FIRST = "00000000000000000000"
"""The first segment, sealed; its batches have the codecs 0 to 4 in turn."""
GARBAGE = b"\xff" * 100


class Place(NamedTuple):
    """Where a violation must be reported."""

    rule: Rule
    name: str
    byte: int | None


Plant = Callable[[SampleLog], Place]


class Plants:
    """The damages of one file of tests. Each is a function that does it to a good log and says where it must show."""

    def __init__(self) -> None:
        self.all: list[Plant] = []

    def __call__(self, damage: Plant) -> Plant:
        self.all.append(damage)
        return damage


def expect_report(damage: Plant) -> None:
    """A log with this damage is reported under the right rule, at the right place."""
    log = closed_log()
    place = damage(log)
    findings = verify_partition(log.disk, log.path)
    wanted = (place.rule, log.file(place.name), place.byte)
    assert wanted in [(f.rule, f.path, f.byte) for f in findings if f.is_violation], "\n".join(
        str(finding) for finding in findings
    )


def violations(log: SampleLog, **options: bool) -> list[tuple[Rule, str, int | None]]:
    """All that is reported of a log as broken."""
    return [
        (f.rule, f.path, f.byte) for f in verify_partition(log.disk, log.path, **options) if f.is_violation
    ]
