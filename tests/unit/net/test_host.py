"""Hosts: the same answer in every process of one, which is what lets a client use ipc://."""

from __future__ import annotations

import subprocess
import sys

from ringlog.net.host import host_id


def test_another_process_of_this_host_gives_the_same_answer():
    code = "from ringlog.net.host import host_id; print(host_id())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == host_id()
