"""Who makes no pass for a session stands still; who looks away, or stands still itself, has seen nothing of that."""

from __future__ import annotations

from ringlog.limits import BROKER_BEAT_MS, BROKER_SESSION_MS
from ringlog.ring.standstill import StandstillWatch

BEAT, SESSION = BROKER_BEAT_MS, BROKER_SESSION_MS


class World:
    """Two loops, of which each makes passes while the test lets it."""

    def __init__(self) -> None:
        self.passes = [10, 10]
        self.watch = StandstillWatch(lambda: self.passes, look_ms=BEAT)
        self.now_ms = 0.0
        self.watch.look(self.now_ms)

    def run(self, *moving: int, until_ms: float) -> list[list[int]]:
        """What every look finds until then."""
        found = []
        while self.now_ms < until_ms:
            self.now_ms += BEAT
            self.passes = [count + (at in moving) for at, count in enumerate(self.passes)]
            found.append(self.watch.look(self.now_ms))
        return found


def test_a_loop_without_a_pass_for_a_session_stands_still_until_its_next_one():
    world = World()
    looks = world.run(1, until_ms=SESSION)
    assert looks[:-1] == [[]] * (len(looks) - 1) and looks[-1] == [0]
    assert world.run(0, 1, until_ms=SESSION + BEAT) == [[]]


def test_a_loop_that_makes_passes_never_stands_still():
    assert not any(World().run(0, 1, until_ms=10 * SESSION))


def test_a_process_that_was_started_anew_and_makes_no_pass_stands_still_after_a_session_too():
    world = World()
    world.run(0, 1, until_ms=SESSION)
    world.passes[0] = 0
    looks = world.run(1, until_ms=2 * SESSION + BEAT)
    assert looks[-2:] == [[], [0]]


def test_time_in_which_nobody_looked_counts_as_one_look():
    world = World()
    world.run(until_ms=SESSION - 2 * BEAT)
    world.now_ms += 60_000
    assert world.watch.look(world.now_ms) == [], "it was this process that stood still"
    assert world.watch.look(world.now_ms + BEAT) == [0, 1]
