"""Which engine serves: io_uring where the kernel allows it, else the plain one, and then out loud."""

from __future__ import annotations

import errno
import importlib
import logging
import os
from typing import Literal

from ringlog.disk.api import WatchingDisk
from ringlog.disk.plain import PlainDisk
from ringlog.errors import DiskEngineUnavailable

Preference = Literal["auto", "io_uring", "plain"]

IO_URING_SYSCTL = "/proc/sys/kernel/io_uring_disabled"

_log = logging.getLogger(__name__)


def open_disk(prefer: Preference = "auto") -> WatchingDisk:
    """The best engine that works here, or the one that was asked for.

    `auto` tries io_uring by using it, and falls back to the plain engine with a warning. `io_uring` raises
    DiskEngineUnavailable where it does not work.

    >>> disk = open_disk("plain")
    >>> disk.name
    'plain'
    >>> disk.shutdown()
    """
    if prefer == "plain":
        return PlainDisk()
    if prefer not in ("auto", "io_uring"):
        raise ValueError(f"a disk engine is auto, io_uring or plain, not {prefer!r}")
    try:
        # Imported here, as the plain engine must work where the package cannot even be loaded.
        from ringlog.disk.uring import UringDisk

        return UringDisk()
    except (ImportError, OSError) as error:
        reason = why_unavailable(error)
        if prefer == "io_uring":
            raise DiskEngineUnavailable(reason) from error
        _log.warning(
            "io_uring is not available: %s Falling back to the plain engine: just as durable, but the writes "
            "of a cycle go to the device one by one, so appends to many partitions are several times slower.",
            reason,
        )
        return PlainDisk()


def preload() -> None:
    """Load the engine's package in a process that will fork: once, instead of in each child."""
    try:
        importlib.import_module("ringlog.disk.uring")
    except (ImportError, OSError) as error:
        _log.debug("io_uring cannot be loaded: %s", error)  # open_disk will say so, out loud


def why_unavailable(error: ImportError | OSError) -> str:
    """What keeps io_uring from working, and what allows it.

    >>> why_unavailable(OSError(errno.ENOSYS, "Function not implemented"))
    'the kernel has none, or a sandbox hides it (ENOSYS). Use Linux 6.1 or newer, outside of gVisor.'
    """
    if isinstance(error, ImportError):
        return f"the liburing package cannot be loaded ({error}). Install liburing==2024.5.3."
    if error.errno in (errno.EPERM, errno.EACCES):
        disabled = _read_sysctl()
        if disabled != "0":
            return f"kernel.io_uring_disabled is {disabled}. Allow it: sysctl -w kernel.io_uring_disabled=0."
        return (
            "a seccomp filter forbids it, as container runtimes do. Allow io_uring_setup, io_uring_enter and "
            "io_uring_register in the profile that the container is given (--security-opt seccomp=PROFILE)."
        )
    if error.errno == errno.ENOSYS:
        return (
            "the kernel has none, or a sandbox hides it (ENOSYS). Use Linux 6.1 or newer, outside of gVisor."
        )
    if error.errno == errno.ENOMEM:
        return (
            "the limit of locked memory is too small for a ring (ENOMEM). Raise it with: ulimit -l unlimited."
        )
    return f"{os.strerror(error.errno or 0)} ({error})."


def _read_sysctl() -> str:
    """The switch that turns io_uring off for all; kernels before 6.6 have none."""
    try:
        with open(IO_URING_SYSCTL, encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return "0"
