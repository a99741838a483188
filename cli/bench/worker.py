"""One of several producers: `python -m cli.bench.worker PLAN NUMBER`, a process, so that each has a core's worth.

Says "ready" when connected, waits for a line, and then prints a line of JSON now and then and one at the end.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import msgspec

from cli.bench.load import Load
from cli.bench.plan import Plan
from cli.bench.report import Outcome
from cli.bench.sketch import Sketch
from cli.bench.values import make_values
from cli.clients import open_producer
from cli.failures import ExitCode, drop_output, exit_code, failure_line
from cli.held_up import telling_what_holds_up
from ringlog.errors import NodeFailed, RinglogError

LINGER_MS = 5
DELIVERY_TIMEOUT_S = 120.0


def run_share(
    plan: Plan, number: int, on_progress: Callable[[Outcome], None], ready: Callable[[], object]
) -> Outcome:
    """Send one producer's share of the plan, once `ready` returns."""
    count, rate = plan.share(number)
    values = make_values(plan.chunk_records, plan.record_size, seed=number + 1)
    settings = {
        "acks": plan.acks,
        "compression_type": plan.codec,
        "linger_ms": LINGER_MS,
        "delivery_timeout_ms": int(DELIVERY_TIMEOUT_S * 1000),
    }
    if plan.acks == "0":
        settings["enable_idempotence"] = False
    with (
        open_producer(plan.bootstrap, **settings) as producer,
        # What holds one up holds all up, and one line is enough.
        telling_what_holds_up(producer, DELIVERY_TIMEOUT_S) if number == 0 else nullcontext(),
    ):
        load = Load(producer, plan.topic, values, count=count, seconds=plan.seconds, rate=rate)
        ready()
        return load.run(on_progress)


def run_workers(plan: Plan, on_progress: Callable[[Outcome], None]) -> Outcome:
    """Run all shares at once, and add up what they did."""
    encoded = msgspec.json.encode(asdict(plan)).decode()
    workers: list[subprocess.Popen[str]] = []
    latest: list[Outcome | None] = [None] * plan.producers
    lock = threading.Lock()

    def follow(number: int) -> None:
        stdout = workers[number].stdout
        assert stdout is not None
        for line in stdout:
            with lock:
                latest[number] = _load(msgspec.json.decode(line))
                on_progress(_sum(latest))

    try:
        # One by one, and in here: Ctrl-C between two of them ends the first.
        workers.extend(_start(encoded, number) for number in range(plan.producers))
        for worker in workers:
            assert worker.stdout is not None and worker.stdin is not None
            if worker.stdout.readline() != "ready\n":
                raise NodeFailed("a producer of the benchmark did not start; its message stands above")
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        threads = [threading.Thread(target=follow, args=(number,)) for number in range(plan.producers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if any(worker.wait() for worker in workers):
            raise NodeFailed("a producer of the benchmark failed; its message stands above")
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()
    return _sum(latest)


def _start(encoded: str, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cli.bench.worker", encoded, str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,  # Ctrl-C is for the one who ends them, not for a worker in the middle of an import
    )


def _sum(outcomes: list[Outcome | None]) -> Outcome:
    total = Outcome()
    for outcome in outcomes:
        if outcome is not None:
            total.merge(outcome)
    return total


def _dump(outcome: Outcome) -> dict[str, Any]:
    return {
        "records": outcome.records,
        "value_bytes": outcome.value_bytes,
        "began_s": outcome.began_s,
        "ended_s": outcome.ended_s,
        "latencies": outcome.latencies.dump(),
        "durability": outcome.durability,
    }


def _load(dumped: dict[str, Any]) -> Outcome:
    return Outcome(**{**dumped, "latencies": Sketch.load(dumped["latencies"])})


def main() -> None:
    plan = Plan(**msgspec.json.decode(sys.argv[1]))

    def show(outcome: Outcome) -> None:
        print(msgspec.json.encode(_dump(outcome)).decode(), flush=True)

    def ready() -> None:
        print("ready", flush=True)
        if not sys.stdin.readline():
            sys.exit(1)  # whoever started us is gone

    try:
        run_share(plan, int(sys.argv[2]), show, ready)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:  # whoever started us is gone
        drop_output()
        sys.exit(ExitCode.OUTPUT_CLOSED)
    except (RinglogError, OSError) as error:
        print(failure_line(error), file=sys.stderr)
        sys.exit(exit_code(error))


if __name__ == "__main__":
    main()
