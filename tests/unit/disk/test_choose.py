"""The engine that serves is the best that really works, and a fallback is never silent."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from ringlog.disk import choose
from ringlog.disk.choose import open_disk, why_unavailable
from ringlog.disk.plain import PlainDisk
from ringlog.disk.uring import UringDisk

FORBID = """
import ctypes, struct, sys
def forbid(number, with_errno):
    '''Have the kernel refuse one system call in this process, as container runtimes do.'''
    program = b"".join(struct.pack("HBBI", *step) for step in [
        (0x20, 0, 0, 0),                       # load the number of the call
        (0x15, 0, 1, number),                  # is it the one?
        (0x06, 0, 0, 0x00050000 | with_errno), # then refuse
        (0x06, 0, 0, 0x7FFF0000),              # else allow
    ])
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]
    libc = ctypes.CDLL(None, use_errno=True)
    filtered = Program(len(program) // 8, program)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(filtered), 0, 0) == 0, ctypes.get_errno()
"""
OPEN = """
from ringlog.disk.choose import open_disk
disk = open_disk(sys.argv[1])
print(disk.name)
"""
IO_URING_SETUP, IO_URING_ENTER = 425, 426


def run(script, prefer):
    return subprocess.run([sys.executable, "-c", script, prefer], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("number", [IO_URING_SETUP, IO_URING_ENTER])
@pytest.mark.parametrize("refusal", [errno.EPERM, errno.ENOSYS])
def test_where_the_kernel_refuses_io_uring_the_plain_engine_serves_and_says_so(number, refusal):
    ran = run(f"{FORBID}\nforbid({number}, {refusal}){OPEN}", "auto")
    assert ran.stdout.strip() == "plain", ran.stderr
    assert "io_uring is not available" in ran.stderr
    assert "slower" in ran.stderr
    assert ("seccomp" if refusal == errno.EPERM else "ENOSYS") in ran.stderr


def test_asking_for_io_uring_where_it_is_refused_raises_a_typed_error():
    ran = run(f"{FORBID}\nforbid({IO_URING_SETUP}, {errno.EPERM}){OPEN}", "io_uring")
    assert ran.returncode != 0
    assert "DiskEngineUnavailable" in ran.stderr


def test_the_plain_engine_serves_where_the_package_cannot_be_loaded():
    ran = run(f"import sys\nsys.modules['liburing'] = None{OPEN}", "auto")
    assert ran.stdout.strip() == "plain", ran.stderr
    assert "liburing" in ran.stderr


def test_io_uring_serves_where_it_works_and_says_nothing(caplog):
    disk = open_disk()
    assert isinstance(disk, UringDisk)
    assert caplog.text == ""
    disk.shutdown()


def test_plain_serves_when_asked_for():
    disk = open_disk("plain")
    assert isinstance(disk, PlainDisk)
    disk.shutdown()


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="quick"):
        open_disk("quick")


def test_a_kernel_switch_is_named_with_the_command_that_turns_it(tmp_path, monkeypatch):
    switch = tmp_path / "io_uring_disabled"
    monkeypatch.setattr(choose, "IO_URING_SYSCTL", str(switch))
    switch.write_text("2\n")
    assert "sysctl -w kernel.io_uring_disabled=0" in why_unavailable(PermissionError(errno.EPERM, "no"))
    switch.write_text("0\n")
    assert "seccomp" in why_unavailable(PermissionError(errno.EPERM, "no"))
    switch.unlink()
    assert "seccomp" in why_unavailable(PermissionError(errno.EPERM, "no"))


def test_other_refusals_are_told_as_the_kernel_tells_them():
    assert "ulimit" in why_unavailable(OSError(errno.ENOMEM, "no"))
    assert "Too many open files" in why_unavailable(OSError(errno.EMFILE, "no"))
