"""The native module says nothing at the end of a program that still holds its objects."""

from __future__ import annotations

import subprocess
import sys

HOLDS_ON = """
import ctypes
from ringlog.records.builder import BatchBuilder
builder = BatchBuilder(tuple, None, bytes_target=1024)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(builder._native))
"""


def test_an_object_that_is_held_to_the_end_is_no_news():
    done = subprocess.run([sys.executable, "-c", HOLDS_ON], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
