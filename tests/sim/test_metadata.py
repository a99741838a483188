"""Consensus and controller together in the simulator: leaders, in-sync replicas and topics through every storm."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ringlog.controller import leaders
from ringlog.controller.active import ActiveController
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import MetadataRecord, Partition
from tests.sim.metadata import metadata
from tests.sim.metadata_node import MetadataNode
from tests.sim.replay import first_failing, run_seeds
from tests.support.amounts import amount


def test_every_seed_keeps_the_metadata_consistent():
    ran = run_seeds("metadata", metadata, range(amount(80, 2_000)), within_s=amount(8, 900))
    assert ran >= 3, "the simulator has become too slow to show anything"


class _JudgesByCommitted(ActiveController):
    """What is on its way is forgotten."""

    def __init__(self, committed: MetadataImage, appended: Iterable[MetadataRecord], **given: Any) -> None:
        super().__init__(committed, appended, **given)
        self.planned = committed

    def appended(self, records: Iterable[MetadataRecord]) -> None:
        """The mutation: nothing is planned."""


def test_two_decisions_on_the_same_state_are_caught():
    class Mutant(MetadataNode):
        active_controller = _JudgesByCommitted

    assert first_failing(lambda seed: metadata(seed, Mutant), range(1_000)) is not None


def test_an_election_of_a_replica_that_is_not_in_sync_is_caught(monkeypatch: pytest.MonkeyPatch):
    choose = leaders.choose_leader

    def unclean(image: MetadataImage, partition: Partition, isr: Iterable[int]) -> int:
        return choose(image, partition, partition.replicas)

    monkeypatch.setattr(leaders, "choose_leader", unclean)
    assert first_failing(metadata, range(1_000)) is not None
