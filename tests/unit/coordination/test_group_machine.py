"""The group machine under everything that can happen to it: what a member holds, nobody else holds; nothing is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.amounts import cases
from tests.support.group_world import HOW, SESSION_MS, SUBSCRIPTIONS, GroupWorld

INSTANCES = ("", "", "i1")
WAITS = (500, 3_000, SESSION_MS // 2)
GOING = ("dies", "leaves", "loses all")


class GroupMachine(RuleBasedStateMachine):
    """Hypothesis decides what happens, and finds the shortest story of what goes wrong."""

    @initialize(data=st.data())
    def begin(self, data):
        self.world = GroupWorld(lambda some: data.draw(st.sampled_from(some)))

    @rule(topics=st.sampled_from(SUBSCRIPTIONS), instance=st.sampled_from(INSTANCES), late=st.booleans())
    def start(self, topics, instance, late):
        self.world.start(topics, instance, late)

    @rule(wait_ms=st.sampled_from([0, 3_000]), how=st.sampled_from(HOW))
    def beat(self, wait_ms, how):
        self.world.beat(wait_ms, how)

    @rule(give_up=st.booleans(), how=st.sampled_from(HOW))
    def beat_all(self, give_up, how):
        self.world.beat_all(give_up, how)

    @rule(how=st.sampled_from(HOW))
    def commit(self, how):
        self.world.commit(how)

    @rule(how=st.sampled_from(GOING))
    def go(self, how):
        self.world.go(how)

    @rule(repeat=st.booleans())
    def deliver_to_node(self, repeat):
        self.world.deliver_to_node(repeat)

    @rule()
    def deliver_to_client(self):
        self.world.deliver_to_client()

    @rule()
    def lose(self):
        self.world.lose()

    @rule()
    def flush(self):
        self.world.flush()

    @rule(compacted=st.booleans())
    def crash(self, compacted):
        self.world.crash(compacted)

    @rule(topic=st.sampled_from("abc"))
    def grow(self, topic):
        self.world.grow(topic)

    @rule(ms=st.sampled_from(WAITS))
    def wait(self, ms):
        self.world.wait(ms)

    @rule()
    def rest(self):
        self.world.rest()

    @invariant()
    def one_reader(self):
        if hasattr(self, "world"):
            self.world.one_reader()


GroupMachine.TestCase.settings = settings(
    max_examples=len(cases(60, 3000)),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestGroupMachine = GroupMachine.TestCase


def live(chance: random.Random, steps: int) -> None:
    """Chance decides what happens, for much longer than hypothesis would look."""
    world, pick, odds = GroupWorld(chance.choice), chance.choice, chance.random
    happen = {
        lambda: world.start(pick(SUBSCRIPTIONS), pick(INSTANCES), odds() < 0.3): 2.0,
        lambda: world.beat(pick((0, 3_000)), pick(HOW)): 4.0,
        lambda: world.beat_all(odds() < 0.6, pick(HOW)): 4.0,
        lambda: world.commit(pick(HOW)): 4.0,
        lambda: world.go(pick(GOING)): 1.0,
        lambda: world.deliver_to_node(odds() < 0.3): 6.0,
        world.deliver_to_client: 5.0,
        world.lose: 1.0,
        world.flush: 3.0,
        lambda: world.crash(odds() < 0.5): 0.5,
        lambda: world.grow(pick("abc")): 1.0,
        lambda: world.wait(pick(WAITS)): 1.5,
        world.rest: 0.2,
    }
    for step in chance.choices(list(happen), list(happen.values()), k=steps):
        step()
        world.one_reader()
    world.rest()


@pytest.mark.parametrize("seed", cases(10, 500))
def test_long_lives_of_groups_break_no_promise(seed):
    chance = random.Random(seed)
    for _ in range(15):
        live(chance, steps=150)
