"""The simulator itself: a seed replays exactly, faults do what they say, and a checker that should bite bites."""

from __future__ import annotations

import pytest

from tests.sim.counter import Counter, counter
from tests.sim.disk import Rotten, SimDisk
from tests.sim.machine import Machine
from tests.sim.network import Network, Weather
from tests.sim.replay import CheckFailed, first_failing, run_seeds
from tests.sim.scheduler import Scheduler


class Recorder:
    """Notes what arrives, and when."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.got: list[tuple[float, int, object]] = []

    def receive(self, source: int, message: object) -> None:
        self.got.append((self.machine.scheduler.now_ms, source, message))


def three_machines(seed: int = 1, weather: Weather | None = None) -> tuple[Scheduler, Network, list[Machine]]:
    scheduler = Scheduler(seed)
    network = Network(scheduler, weather or Weather())
    machines = [Machine(node_id, scheduler, network, Recorder) for node_id in (1, 2, 3)]
    for machine in machines:
        machine.start()
    return scheduler, network, machines


def test_the_same_seed_tells_the_same_story():
    assert counter(5) == counter(5)
    assert counter(5) != counter(6)


def test_a_failing_seed_names_the_command_that_replays_it():
    class Hasty(Counter):
        acks_before_flush = True

    with pytest.raises(CheckFailed, match=r"python -m tests\.sim counter --seed \d+"):
        run_seeds("counter", lambda seed: counter(seed, Hasty), range(100))


def test_an_ack_before_the_flush_is_caught():
    class Hasty(Counter):
        acks_before_flush = True

    assert first_failing(lambda seed: counter(seed, Hasty), range(100)) is not None
    assert first_failing(counter, range(20)) is None


def test_power_loss_keeps_what_was_flushed_and_a_beginning_of_the_rest():
    kept: set[int] = set()
    for seed in range(50):
        scheduler = Scheduler(seed)
        disk = SimDisk(scheduler)
        journal = disk.journal("j")
        for number in range(5):
            journal.append(number)
        disk.flush(lambda: None)
        scheduler.run_for(10)
        journal.truncate(4)
        for number in range(5, 10):
            journal.append(number)
        disk.lose_power()
        left = disk.journal("j").items
        assert left in [list(range(5)), *([0, 1, 2, 3, *range(5, end)] for end in range(5, 11))]
        kept.add(len(left))
    assert len(kept) > 3, "different seeds lose different amounts"


def test_a_cell_is_the_old_or_the_new_value_and_rot_shows():
    values = set()
    for seed in range(20):
        scheduler = Scheduler(seed)
        disk = SimDisk(scheduler)
        disk.write("vote", "old")
        disk.flush(lambda: None)
        scheduler.run_for(10)
        disk.write("vote", "new")
        disk.lose_power()
        values.add(disk.read("vote"))
    assert values == {"old", "new"}
    disk.journal("j").append("x")
    disk.flush(lambda: None)
    scheduler.run_for(10)
    disk.journal("j").rot(0)
    assert disk.journal("j").items == [Rotten(0)]


def test_a_killed_process_leaves_what_it_wrote_and_hears_of_no_flush():
    scheduler, _, machines = three_machines()
    machine, told = machines[0], []
    machine.disk.journal("j").append(1)
    machine.flush(lambda: told.append("flushed"))
    machine.after(1, lambda: told.append("timer"))
    machine.kill()
    scheduler.run_for(100)
    assert told == []
    assert machine.disk.journal("j").items == [1]


def test_cuts_work_in_the_direction_that_they_say():
    scheduler, network, machines = three_machines()
    network.cut_one_way(1, 2)
    machines[0].send(2, "lost")
    machines[1].send(1, "heard")
    scheduler.run_for(10)
    assert machines[1].process.got == []
    assert [message for _, _, message in machines[0].process.got] == ["heard"]
    network.heal()
    network.cut_chain([1, 2, 3])
    for source in machines:
        for destination in (1, 2, 3):
            if destination != source.node_id:
                source.send(destination, "chain")
    scheduler.run_for(10)
    assert {source for _, source, message in machines[0].process.got if message == "chain"} == {2}
    assert {source for _, source, message in machines[1].process.got if message == "chain"} == {1, 3}


def test_bad_weather_drops_doubles_and_reorders():
    scheduler, network, machines = three_machines(
        3, Weather(delay_ms=(0.1, 50), drop=0.2, duplicate=0.2, late=0.1)
    )
    for number in range(500):
        machines[0].send(2, number)
    scheduler.run_for(10_000)
    got = [message for _, _, message in machines[1].process.got]
    assert len(set(got)) < 500 and network.dropped > 0
    assert len(got) > len(set(got)), "some came twice"
    assert got != sorted(got), "some overtook others"


def test_a_paused_machine_goes_on_with_what_waited_for_it():
    scheduler, _, machines = three_machines()
    machines[1].pause()
    machines[0].send(2, "while you slept")
    scheduler.run_for(5000)
    assert machines[1].process.got == []
    machines[1].resume()
    assert [message for _, _, message in machines[1].process.got] == ["while you slept"]


def test_clocks_run_at_their_own_rates():
    scheduler, _, machines = three_machines()
    machines[0].skew(1.25)
    machines[1].skew(0.8)
    scheduler.run_for(1000)
    assert [round(machine.now_ms()) for machine in machines] == [1250, 800, 1000]
