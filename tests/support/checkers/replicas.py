"""C2, between nodes: when all are in sync and nobody writes, the replicas of a partition are the same bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from ringlog.records.scan import scan
from tests.support.checkers.disk import partition_dirs
from tests.support.checkers.violations import Rule, Violation

_SEGMENT = re.compile(r"\d{20}\.log")


def check_replicas(data_dirs: Sequence[str], topic: str) -> list[Violation]:
    """Partitions of a topic, which is not compacted, whose replicas differ, after a clean stop of all nodes.

    >>> check_replicas([], "orders")
    []
    """
    found: list[Violation] = []
    replicas: dict[str, list[tuple[str, bytes]]] = {}
    for data_dir in data_dirs:
        for name, path in partition_dirs(data_dir).items():
            if name.rpartition("-")[0] == topic:
                replicas.setdefault(name, []).append((data_dir, log_bytes(path)))
    for name, held in sorted(replicas.items()):
        (first_dir, first), *others = held
        for other_dir, other in others:
            if other != first:
                found.append(Violation(Rule.REPLICAS, name, _difference(first_dir, first, other_dir, other)))
    return found


def log_bytes(path: str) -> bytes:
    """All batches of a partition's directory, in order."""
    whole = b""
    for name in sorted(filter(_SEGMENT.fullmatch, os.listdir(path))):
        with open(os.path.join(path, name), "rb") as file:
            whole += file.read()
    return whole


def _difference(first_dir: str, first: bytes, other_dir: str, other: bytes) -> str:
    """Where two logs begin to differ, for people."""
    for mine, theirs in zip_longest(_batches(first), _batches(other)):
        if mine != theirs:
            return f"{first_dir} has {_named(mine)} where {other_dir} has {_named(theirs)}"
    return f"bytes beside the batches: {len(first)} in {first_dir}, {len(other)} in {other_dir}"


def _batches(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """First and last offset, leader epoch and bytes of each batch."""
    for row in scan(data, level="headers").table:
        at, end = int(row["position"]), int(row["position"]) + int(row["length"])
        yield int(row["base_offset"]), int(row["last_offset"]), int(row["leader_epoch"]), data[at:end]


def _named(batch: tuple[int, int, int, bytes] | None) -> str:
    return "nothing" if batch is None else f"{batch[0]}-{batch[1]} of epoch {batch[2]}"
