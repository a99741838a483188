#!/usr/bin/env bash
# Adds what extras need to a virtual environment in which ringlog is installed. Usage: install-extras.sh PYTHON EXTRA…
set -eu
python=$1
shift
"$python" -m pip install -q --no-build-isolation -r <("$python" scripts/requirements.py "$@")
# As in install.sh.
"$python" -m compileall -q perf tests
