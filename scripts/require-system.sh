#!/usr/bin/env bash
# Names what the system lacks, with the line that installs it. Usage: require-system.sh PYTHON
set -u
python=$1
missing=()
command -v "$python" >/dev/null || missing+=(python3)
command -v c++ >/dev/null || missing+=(g++)
command -v cc >/dev/null || missing+=(gcc)
command -v make >/dev/null || missing+=(make)
if command -v "$python" >/dev/null; then
  "$python" -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
  header=$("$python" -c 'import sysconfig, os; print(os.path.join(sysconfig.get_path("include"), "Python.h"))')
  [ -e "$header" ] || missing+=(python3-dev)
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "ringlog needs Python 3.11 or newer, and $python is $("$python" --version). Try: make PYTHON=python3.11 …" >&2
    exit 1
  fi
fi
[ ${#missing[@]} -eq 0 ] && exit 0
line="apt-get update && apt-get install -y ${missing[*]}"
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  echo "installing what is missing: ${missing[*]}" >&2
  eval "$line" >&2
else
  echo "ringlog needs ${missing[*]}. Install with: sudo sh -c '$line'" >&2
  exit 1
fi
