"""Why a process cannot listen at an address, and what to do about it. Pure."""

from __future__ import annotations

import errno

_ADVICE = {
    errno.EADDRINUSE: "Another process uses it: give another one with {setting}",
    errno.EADDRNOTAVAIL: "This host has no such address: give one of its own with {setting}",
    errno.ENODEV: "This host has no such address: give one of its own with {setting}",
    errno.ENOENT: "Make the directory, or give another path with {setting}",
    errno.EACCES: "This user may not: give a port above 1023, or another path, with {setting}",
    errno.EPERM: "This user may not: give a port above 1023, or another path, with {setting}",
}
_WORDS = {errno.ENODEV: "unknown host or device"}
"""What libzmq says of a name that it cannot resolve is about hardware."""


def why_not_listening(endpoint: str, error: Exception, setting: str) -> str:
    """The sentence for an error of `bind`, by the system or by ZeroMQ.

    >>> why_not_listening("tcp://10.0.0.1:9400", OSError(errno.EADDRINUSE, "in use"), "--listen")
    'cannot listen on tcp://10.0.0.1:9400: in use. Another process uses it: give another one with --listen'
    """
    number = getattr(error, "errno", None) or 0
    said = str(getattr(error, "strerror", None) or error).split(" (addr=")[0].rstrip(".")
    advice = _ADVICE.get(number, "Give another address with {setting}").format(setting=setting)
    return f"cannot listen on {endpoint}: {_WORDS.get(number, said)}. {advice}"
