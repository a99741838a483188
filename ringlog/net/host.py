"""Which host this process runs on: a client and a node with the same answer may speak over ipc://."""

from __future__ import annotations

import functools
import os

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@functools.cache
def host_id() -> str:
    """The boot of the machine, with the namespaces that decide whether a socket's path means the same file.

    Two containers of one machine share the boot and not the mounts; a path that one was given names nothing, or
    something else, in the other.

    >>> host_id() == host_id()
    True
    """
    return ":".join((_boot_id(), _namespace("mnt"), _namespace("net")))


def _boot_id() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        # Nobody else can have this name, so nobody is offered ipc:// by mistake.
        return f"unknown-{os.getpid()}-{os.urandom(8).hex()}"


def _namespace(name: str) -> str:
    try:
        return str(os.stat(f"/proc/self/ns/{name}").st_ino)
    except OSError:
        return f"unknown-{os.getpid()}"
