#!/usr/bin/env bash
# Builds and installs ringlog into a virtual environment. Usage: install.sh PYTHON
#
# The liburing package compiles for more than a minute, so it is built in the background while
# everything else is fetched and our own kernel is compiled.
set -eu
python=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
liburing=$(sed -nE 's/^ *"(liburing==[^;"]+).*/\1/p' pyproject.toml)

CC=$PWD/scripts/quick-cc.sh "$python" -m pip install -q "$liburing" >"$log" 2>&1 &
background=$!
# setuptools and wheel: pyspark comes as source, and what follows builds without a place of its own.
"$python" -m pip install -q scikit-build-core nanobind cmake ninja setuptools wheel
"$python" -m pip install -q --no-build-isolation --no-deps -e .
if ! wait $background; then
  cat "$log" >&2
  echo "the liburing package did not build; it needs a C compiler and make" >&2
  exit 1
fi
"$python" -m pip install -q --no-build-isolation -r <("$python" scripts/requirements.py)
# Once, also where PYTHONDONTWRITEBYTECODE keeps Python from it, as in many containers: a node starts in half the time.
"$python" -m compileall -q ringlog cli tuning spark_bridge
