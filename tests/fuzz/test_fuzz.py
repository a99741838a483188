"""The fuzz targets, run briefly from a fixed seed, so that they cannot rot; `run.py` runs them at length."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent
TARGETS = sorted(source.stem for source in HERE.glob("fuzz_*.cpp"))


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ringlog_fuzz_run", HERE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def programs(fuzz: ModuleType) -> dict[str, Path]:
    return {program.name: program for program in fuzz.build(fuzz.BUILD / "own", libfuzzer=False)}


@pytest.mark.parametrize("target", TARGETS)
def test_the_invariant_holds_for_seeded_inputs(programs, target):
    done = subprocess.run(
        [programs[target], "--seed", "20260101", "--runs", "3000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "3000 runs" in done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_the_invariant_is_stated_at_the_top(target):
    comment = re.match(r"(//[^\n]*\n)+", (HERE / f"{target}.cpp").read_text())
    assert comment is not None
    assert "Invariant:" in comment.group()


def test_a_broken_invariant_fails_and_tells_how_to_repeat_it(programs, tmp_path):
    # A target of its own whose invariant some seeded input breaks.
    source = tmp_path / "fuzz_never.cpp"
    source.write_text(
        '#include <cstddef>\n#include <cstdint>\n#include "require.hpp"\n'
        'extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t size) {\n'
        "    REQUIRE(size != 68);\n"
        "    return 0;\n"
        "}\n"
    )
    own = next(iter(programs.values())).parent
    objects = list((own / "CMakeFiles" / "driver.dir").glob("*.o"))
    program = tmp_path / "fuzz_never"
    compiler = ["g++", "-std=c++20", "-fsanitize=address,undefined", f"-I{HERE}"]
    subprocess.run([*compiler, source, *objects, own / "libcores.a", "-o", program], check=True)
    failed = subprocess.run(
        [program, "--seed", "5", "--runs", "500"], capture_output=True, text=True, check=False
    )
    assert failed.returncode != 0
    repeat = re.search(r"to repeat: --runs 1 --seed (\d+)", failed.stderr)
    assert repeat is not None
    again = subprocess.run([program, "--runs", "1", "--seed", repeat[1]], capture_output=True, check=False)
    assert again.returncode != 0


def test_a_target_that_fails_fails_the_run(fuzz, tmp_path):
    program = tmp_path / "fuzz_broken"
    program.write_text("#!/bin/sh\necho broken\nexit 1\n")
    program.chmod(0o755)
    assert fuzz.run(program, []) is False


def test_a_target_that_is_killed_fails_the_run_and_says_by_what(fuzz, tmp_path, capsys):
    program = tmp_path / "fuzz_killed"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    assert fuzz.run(program, []) is False
    assert "fuzz_killed: FAILED, killed by SIGKILL" in capsys.readouterr().out


def test_an_interrupted_run_ends_without_a_traceback(tmp_path):
    command = "import os, runpy, signal, subprocess, sys\n"
    command += "subprocess.run = lambda *a, **n: os.kill(os.getpid(), signal.SIGINT)\n"
    command += (
        f"sys.argv = ['run.py', '--runs', '1']\nrunpy.run_path({str(HERE / 'run.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
