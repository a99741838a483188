#!/usr/bin/env bash
# Prints the Python to build with: python3, unless that is a plain build, as pyenv's are, and the system's will do.
# Everything that ringlog decides takes a third less time in an interpreter that was optimised by profile.
set -u
system=/usr/bin/python3
can_be_used() { # it is new enough, and can make environments and build, or lets us install what that takes
  "$system" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || return 1
  [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null && return 0
  "$system" -c '
import ensurepip, os, sys, sysconfig, venv
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null
}
if command -v python3 >/dev/null && ! python3 "$(dirname "$0")/../tuning/doctor/interpreter.py" && can_be_used; then
  echo "using $system: $(command -v python3) was built without optimisation (make PYTHON=python3 … takes that one)" >&2
  echo "$system"
else
  echo python3
fi
