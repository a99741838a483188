"""Builds small C++ test programs against the kernel's sources, only when something changed."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL_SOURCES = ROOT / "ringlog" / "native" / "src"
FLAGS = ["-std=c++20", "-g", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-pthread"]


def compiler() -> str:
    """The C++ compiler; the set-up needs one, so its absence is an error and not a reason to skip."""
    found = shutil.which("g++") or shutil.which("c++")
    assert found is not None, "no C++ compiler: apt-get install g++"
    return found


def build(source: Path, *flags: str, name: str | None = None, into: str = "litmus") -> Path:
    """Compile one program into build/<into>/ and return its path."""
    program = ROOT / "build" / into / (name or source.stem)
    inputs = [*source.parent.glob("*.?pp"), *KERNEL_SOURCES.glob("*.?pp"), Path(__file__)]
    program.parent.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{KERNEL_SOURCES}", f"-I{source.parent}"]
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes; one builds, the others wait for it
        newest = max(path.stat().st_mtime for path in inputs)
        if not (program.exists() and program.stat().st_mtime >= newest):
            subprocess.run(
                [compiler(), *FLAGS, *flags, *includes, str(source), "-o", str(program)], check=True
            )
    return program


def run(program: Path, *arguments: object, timeout_s: float = 150) -> dict[str, float]:
    """Run a program that prints `name=value` pairs; what it printed. Fails with its own words."""
    done = subprocess.run(
        [str(program), *map(str, arguments)], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return {name: float(value) for name, value in (pair.split("=") for pair in done.stdout.split())}
