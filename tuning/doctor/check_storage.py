"""Checks of the disk under the data directory: file system, mount, device, cache, scheduler, space. Pure."""

from __future__ import annotations

import re

from ringlog.limits import DISK_RESERVE_BYTES_MAX, DISK_RESERVE_SHARE, GIB
from tuning.amounts import bytes_text
from tuning.doctor.facts import StorageFacts, SystemFacts
from tuning.doctor.finding import Finding, KernelSetting, Level

GOOD_FILE_SYSTEMS = ("ext4", "xfs")
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "rootfs")
FREE_WANTED_BYTES = 10 * GIB
_MOVE = "ringlog start --data-dir DIR, with DIR on ext4 or XFS"
_UNSAFE_OPTIONS = ("nobarrier", "barrier=0")
_SLOW_OPTIONS = {
    "sync": "every write waits for the device, also those that need not",
    "dirsync": "every change of a directory waits for the device",
    "data=journal": "data are written twice, and O_DIRECT is refused",
    "strictatime": "every read is a write",
}


def check_data_directory(facts: SystemFacts) -> Finding:
    """A node makes its directory, and writes there."""
    storage = facts.storage
    is_refused = storage.writable is False
    return Finding(
        check="directory",
        level=Level.BROKEN if is_refused else Level.OK,
        found=f"{storage.directory}{' may not be written by this user' if is_refused else ''}",
        wanted="one that this user may write, or make",
        cost="a node cannot start there" if is_refused else "",
        fix="ringlog start --data-dir DIR, with DIR of this user; or run it as the user that owns the data"
        if is_refused
        else "",
    )


def check_file_system(facts: SystemFacts) -> Finding:
    """ext4 and XFS take direct, durable, asynchronous writes into reserved space."""
    kind = facts.storage.file_system
    if kind in IN_MEMORY:
        level, cost = Level.BROKEN, "nothing survives the loss of power, whatever an ack says"
    elif kind in GOOD_FILE_SYSTEMS or not kind:
        level, cost = Level.OK, ""
    elif kind.startswith(("nfs", "cifs", "smb", "fuse", "9p", "virtiofs", "ceph")):
        level, cost = Level.SLOW, "durability is what another host says it is, at the price of a round trip"
    elif kind == "overlay":
        level, cost = Level.SLOW, "a container's own layer: slower, and gone with the container"
    else:
        level, cost = Level.SLOW, "direct writes are copied, checksummed or refused"
    return Finding(
        check="file system",
        level=level,
        found=f"{kind or 'not told'} at {facts.storage.mount_point or '?'}",
        wanted="ext4 or xfs",
        cost=cost,
        fix="" if level is Level.OK else _MOVE,
    )


def check_mount(facts: SystemFacts) -> Finding:
    """Options that break durability, or cost a write."""
    storage = facts.storage
    unsafe = [option for option in storage.mount_options if option in _UNSAFE_OPTIONS]
    slow = [option for option in storage.mount_options if option in _SLOW_OPTIONS]
    level = Level.BROKEN if unsafe else Level.SLOW if slow else Level.OK
    better = {"nobarrier": "barrier", "barrier=0": "barrier=1", "sync": "async", "strictatime": "relatime"}
    options = ",".join(better.get(option, "") for option in (*unsafe, *slow) if option in better)
    fix = (
        f"mount -o remount,{options} {storage.mount_point}"
        if options
        else "take it out of /etc/fstab, and mount anew"
    )
    return Finding(
        check="mount options",
        level=level,
        found=",".join(unsafe + slow) or ",".join(storage.mount_options) or "not told",
        wanted=f"none of {', '.join((*_UNSAFE_OPTIONS, *_SLOW_OPTIONS))}",
        cost="a flush does not reach the device: acknowledged records can be lost with the power"
        if unsafe
        else "; ".join(_SLOW_OPTIONS[option] for option in slow),
        fix="" if level is Level.OK else fix,
    )


def device_kind(device: str, rotational: bool | None) -> str:
    """What a block device is, by its name.

    >>> device_kind("nvme0n1", False), device_kind("vda", True), device_kind("sda", True)
    ('NVMe', 'virtio', 'hard disk')
    """
    for pattern, kind in (
        (r"nvme.*", "NVMe"),
        (r"vd[a-z]+|xvd[a-z]+", "virtio"),
        (r"zram.*|ram\d+", "memory"),
        (r"loop\d+", "loop"),
        (r"md\d+", "RAID"),
        (r"dm-\d+", "mapped"),
        (r"mmcblk\d+", "SD card"),
    ):
        if re.fullmatch(pattern, device):
            return kind
    if rotational:
        return "hard disk"
    return "SSD" if device else "none"


def memory_under(storage: StorageFacts) -> str:
    """What keeps a directory in memory, a file system or a device; empty when a disk has it.

    >>> memory_under(StorageFacts(directory="/dev/shm", file_system="tmpfs"))
    'tmpfs'
    >>> memory_under(StorageFacts(directory="/data", file_system="ext4", device="vda"))
    ''
    """
    if storage.file_system in IN_MEMORY:
        return storage.file_system
    return storage.device if device_kind(storage.device, storage.rotational) == "memory" else ""


def check_device(facts: SystemFacts) -> Finding:
    """Each durable write costs one trip to the device."""
    storage = facts.storage
    kind = device_kind(storage.device, storage.rotational)
    costs = {
        "hard disk": "a durable write takes a turn of the disk: 4 to 10 ms",
        "SD card": "a durable write takes tens of milliseconds, and wears the card out",
        "loop": "each write passes through two file systems",
    }
    level = Level.BROKEN if kind == "memory" else Level.SLOW if kind in costs else Level.OK
    model = f" ({storage.model})" if storage.model else ""
    return Finding(
        check="device",
        level=level,
        found=f"{kind}{f' {storage.device}' if storage.device else ''}{model}",
        wanted="NVMe, SSD or virtio",
        cost="nothing survives the loss of power" if kind == "memory" else costs.get(kind, ""),
        fix="" if level is Level.OK else "ringlog start --data-dir DIR, with DIR on an NVMe disk",
    )


def check_write_cache(facts: SystemFacts) -> Finding:
    """With a volatile cache a durable write needs FUA, or a flush of the whole cache after it."""
    storage = facts.storage
    volatile = storage.write_cache == "write back"
    slow = volatile and storage.fua is False
    fua = {True: ", with FUA", False: ", without FUA", None: ""}[storage.fua]
    return Finding(
        check="write cache",
        level=Level.SLOW if slow else Level.OK,
        found=f"{storage.write_cache or 'not told'}{fua}",
        wanted="write through, or write back with FUA",
        cost="each durable write is followed by a flush of the device's whole cache" if slow else "",
        fix="only if the drive, or the host under it, is protected against power loss: "
        f"echo 'write through' > /sys/block/{storage.device}/queue/write_cache"
        if slow
        else "",
    )


def check_scheduler(facts: SystemFacts) -> Finding:
    """A device with queues of its own needs nobody to sort for it; a disk that turns does."""
    storage = facts.storage
    turns = device_kind(storage.device, storage.rotational) == "hard disk"
    wanted = ("mq-deadline",) if turns else ("none",)
    # Sorting is cheap on a single SATA queue; a scheduler that shares bandwidth fairly is not.
    allowed = (*wanted, "") if turns or storage.device.startswith("nvme") else (*wanted, "mq-deadline", "")
    good = storage.scheduler in allowed or wanted[0] not in storage.schedulers
    setting = KernelSetting(f"/sys/block/{storage.device}/queue/scheduler", wanted[0])
    return Finding(
        check="scheduler",
        level=Level.OK if good else Level.SLOW,
        found=storage.scheduler or "not told",
        wanted=" or ".join(name for name in allowed if name),
        cost="" if good else "each write waits in a queue that sorts for somebody else",
        fix="" if good else setting.command,
        settings=() if good else (setting,),
    )


def check_space(facts: SystemFacts) -> Finding:
    """Records are refused when only the reserve is left."""
    free, total = facts.storage.free_bytes, facts.storage.total_bytes
    if free is None or total is None:
        return Finding(check="free space", level=Level.OK, found="not told", wanted="enough")
    reserve = min(DISK_RESERVE_BYTES_MAX, total // DISK_RESERVE_SHARE)
    level = Level.BROKEN if free < reserve else Level.SLOW if free < FREE_WANTED_BYTES else Level.OK
    return Finding(
        check="free space",
        level=level,
        found=f"{bytes_text(free)} of {bytes_text(total)}",
        wanted=f"{bytes_text(FREE_WANTED_BYTES)} or more",
        cost={
            Level.OK: "",
            Level.SLOW: "space is reserved in smaller steps, and soon records will be refused",
            Level.BROKEN: "records are refused (DISK_FULL)",
        }[level],
        fix=""
        if level is Level.OK
        else "ringlog topic alter TOPIC --config retention.bytes=BYTES, or a larger disk",
    )
