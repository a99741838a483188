#!/usr/bin/env bash
# Adds what extras need to a virtual environment in which ringlog is installed. Usage: install-extras.sh PYTHON EXTRA[,…]
#
# What was built stays as it is: pip reads the names of the extras from the installed package.
set -eu
python=$1
extras=$2
# Never from an index: there, somebody else's package could have this name.
if ! "$python" -P -m pip show -q ringlog; then
  echo "ringlog is not installed there: run \`make setup\` first" >&2
  exit 1
fi
"$python" -m pip install -q --no-build-isolation "ringlog[$extras]"
"$python" -m compileall -q perf tests
