"""All scenarios by their names: what `python -m tests.sim` can run."""

from __future__ import annotations

from functools import partial

from tests.sim.counter import counter
from tests.sim.members import members
from tests.sim.metadata import metadata
from tests.sim.quorum import quorum, quorum_brisk, quorum_short
from tests.sim.replay import Scenario
from tests.sim.replicas import HOLE_KINDS, replicas, replicas_short, unclean

SCENARIOS: dict[str, Scenario] = {
    "counter": counter,
    "members": members,
    "metadata": metadata,
    "quorum": quorum,
    "quorum_brisk": quorum_brisk,
    "quorum_short": quorum_short,
    "replicas": replicas,
    "replicas_holes": partial(replicas_short, kinds=HOLE_KINDS),
    "replicas_short": replicas_short,
    "unclean": unclean,
}
