"""Builds the fuzz targets with sanitizers and runs each for a number of runs: `python tests/fuzz/run.py`.

Uses libFuzzer where clang++ is there, and our own seeded driver under g++ otherwise (or with --driver own).
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "fuzz"


def build(directory: Path, libfuzzer: bool) -> list[Path]:
    """Configure and build all targets; return their programs."""
    compiler = "clang++" if libfuzzer else "g++"
    # The virtual environment has a cmake and a ninja of its own, where the system has none.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    configure = ["cmake", "-S", str(HERE), "-B", str(directory), f"-DCMAKE_CXX_COMPILER={compiler}"]
    configure.append(f"-DRINGLOG_LIBFUZZER={'ON' if libfuzzer else 'OFF'}")
    if shutil.which("ninja", path=path):
        configure += ["-G", "Ninja"]
    jobs = str(os.cpu_count() or 1)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes; one builds, the others wait for it
        _run_all([configure, ["cmake", "--build", str(directory), "--parallel", jobs]], path)
    return [directory / source.stem for source in sorted(HERE.glob("fuzz_*.cpp"))]


def _run_all(commands: Sequence[Sequence[str]], path: str) -> None:
    for command in commands:
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}")


def run(program: Path, arguments: Sequence[str]) -> bool:
    """Run one target; print what it says; whether its invariant held."""
    environment = {"UBSAN_OPTIONS": "print_stacktrace=1", **os.environ}
    done = subprocess.run(
        [str(program), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0:
        print(f"{program.name}: {lines[-1] if lines else 'done'}", flush=True)
        return True
    print(f"{program.name}: FAILED, {_how(done.returncode)}\n{done.stdout}", flush=True)
    return False


def _how(code: int) -> str:
    """How a program ended.

    >>> _how(1), _how(-9)
    ('exit code 1', 'killed by SIGKILL')
    """
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200_000, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same inputs")
    parser.add_argument("--seconds", type=float, default=3600.0, help="at most so long for each target")
    parser.add_argument("--driver", choices=("auto", "own", "libfuzzer"), default="auto")
    parser.add_argument("--only", default="", help="targets whose name contains this")
    options = parser.parse_args(arguments)
    if options.runs < 1 or options.seed < 0 or options.seconds <= 0:
        parser.error("--runs and --seconds must be positive, --seed not negative")

    libfuzzer = options.driver == "libfuzzer" or (
        options.driver == "auto" and shutil.which("clang++") is not None
    )
    if libfuzzer:
        given = [f"-runs={options.runs}", f"-seed={options.seed}", f"-max_total_time={int(options.seconds)}"]
    else:
        given = ["--runs", str(options.runs), "--seed", str(options.seed), "--seconds", str(options.seconds)]
    programs = build(BUILD / ("libfuzzer" if libfuzzer else "own"), libfuzzer)
    chosen = [program for program in programs if options.only in program.name]
    if not chosen:
        raise SystemExit(f"no target is named like {options.only!r}")
    held = [run(program, given) for program in chosen]
    return 0 if all(held) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
