"""Compiles every native source with warnings as errors, without linking: the C++ part of `make check`.

Results are kept by content in build/check-native, so that only what changed is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nanobind

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "ringlog" / "native" / "src"
KEPT = ROOT / "build" / "check-native"
FLAGS = [
    "-std=c++20",
    "-fsyntax-only",
    "-O1",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
]


def main() -> int:
    """Exit code 1 when any source has a warning."""
    KEPT.mkdir(parents=True, exist_ok=True)
    headers = b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.hpp")))
    includes = ["-isystem", nanobind.include_dir(), "-isystem", sysconfig.get_path("include")]
    compiler = os.environ.get("CXX", "c++")

    def check(source: Path) -> str:
        made_by = " ".join([compiler, nanobind.__version__, *FLAGS]).encode()
        state = hashlib.sha256(headers + source.read_bytes() + made_by).hexdigest()
        mark = KEPT / f"{source.stem}.{state[:16]}"
        if mark.exists():
            return ""
        done = subprocess.run(
            [compiler, *FLAGS, *includes, str(source)], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            for old in KEPT.glob(f"{source.stem}.*"):
                old.unlink()
            mark.touch()
        return done.stderr

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(check, sorted(SOURCES.glob("*.cpp"))) if text]
    print("\n".join(complaints), end="", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
