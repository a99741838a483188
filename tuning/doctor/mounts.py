"""Finds the mount of a directory in /proc/self/mountinfo. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Mount(NamedTuple):
    """One mounted file system."""

    device: str
    """`MAJOR:MINOR`."""
    mount_point: str
    file_system: str
    source: str
    options: tuple[str, ...]
    """Of the mount and of the file system."""


def read_mounts(mountinfo: str) -> list[Mount]:
    """All mounts, in the order in which they were made.

    >>> read_mounts("26 1 259:1 / /my\\\\040data rw,relatime shared:1 - ext4 /dev/sda1 rw")[0]
    Mount(device='259:1', mount_point='/my data', file_system='ext4', source='/dev/sda1', options=('rw', 'relatime'))
    """
    mounts: list[Mount] = []
    for line in mountinfo.splitlines():
        mounted, _, about = line.partition(" - ")
        fields, kind = mounted.split(" "), about.split(" ")
        if len(fields) > 5 and len(kind) > 2:
            options = dict.fromkeys([*fields[5].split(","), *kind[2].split(",")])
            mounts.append(Mount(fields[2], _unescaped(fields[4]), kind[0], kind[1], tuple(options)))
    return mounts


def mount_of(mounts: list[Mount], path: str, device: str) -> Mount | None:
    """The mount that a path is on: by its device's number, else (btrfs has numbers of its own) by the longest path.

    >>> mounts = read_mounts("1 0 8:1 / / rw - ext4 /dev/sda1 rw\\n2 1 0:44 / /data rw - btrfs /dev/sdb rw")
    >>> mount_of(mounts, "/home/x", "8:1").source, mount_of(mounts, "/data/x", "0:99").source
    ('/dev/sda1', '/dev/sdb')
    """
    above = [mount for mount in mounts if _is_above(mount.mount_point, path)]
    exact = [mount for mount in above if mount.device == device] or [
        mount for mount in mounts if mount.device == device
    ]
    candidates = exact or above
    return max(candidates, key=lambda mount: len(mount.mount_point)) if candidates else None


def _is_above(mount_point: str, path: str) -> bool:
    return path == mount_point or path.startswith(mount_point.rstrip("/") + "/")


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
