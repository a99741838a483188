"""What was before: the undo file, written before anything is changed, and the way back."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from ringlog.errors import InvalidRequest
from tuning.doctor.finding import KernelSetting
from tuning.doctor.kernel_text import chosen

UNDO_NAME = "tune-undo.json"


class Undo(msgspec.Struct):
    """All that it takes to go back to before the first tune that was not undone."""

    config_path: str
    config_before: str | None
    """None: there was no file."""
    config_written: str | None = None
    """What tune wrote: a file that is different now was edited by somebody."""
    system_before: list[KernelSetting] = []


class Undone(msgspec.Struct, frozen=True):
    """What was put back."""

    config_path: str
    config_removed: bool
    system: list[KernelSetting]
    failed: list[str]
    """Values of the kernel that it did not take back, with the reason."""


def undo_path(data_dir: str) -> str:
    return os.path.join(data_dir, UNDO_NAME)


def load_undo(data_dir: str) -> Undo | None:
    """The undo file of a data directory, None when there is nothing to undo."""
    try:
        with open(undo_path(data_dir), "rb") as file:
            return msgspec.json.decode(file.read(), type=Undo)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as wrong:
        raise InvalidRequest(
            f"{undo_path(data_dir)}: {wrong}. Put the settings back by hand, then delete it"
        ) from None


def save_undo(data_dir: str, undo: Undo) -> None:
    """Write it, whole or not at all, before anything is changed."""
    write_whole(undo_path(data_dir), msgspec.json.format(msgspec.json.encode(undo)).decode())


def write_whole(path: str, text: str) -> None:
    """Replace a file at once, so that no reader and no crash meets half of it."""
    temporary = f"{path}.new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read_text(path: str) -> str | None:
    """A file's content, None when there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def kernel_value(path: str) -> str:
    """What a file of the kernel says now, as it may be written back."""
    with open(path, encoding="utf-8") as file:
        text = file.read().strip()
    return chosen(text) or text


def write_kernel(settings: Sequence[KernelSetting]) -> list[str]:
    """Write values into files of the kernel; what failed, with the reason."""
    failed = []
    for setting in settings:
        try:
            with open(setting.path, "w", encoding="utf-8") as file:
                file.write(setting.value)
        except OSError as error:
            failed.append(f"{setting.path}: {error.strerror}")
    return failed


def take_back(data_dir: str, *, force: bool = False) -> Undone:
    """Put everything back as it was, and delete the undo file."""
    undo = load_undo(data_dir)
    if undo is None:
        raise InvalidRequest(
            f"{undo_path(data_dir)} is not there; nothing was tuned, or it was undone already"
        )
    now = read_text(undo.config_path)
    if now != undo.config_written and not force:
        raise InvalidRequest(
            f"{undo.config_path} was edited since; --yes takes that back too, or delete what tune wrote by hand"
        )
    failed = write_kernel(undo.system_before)
    if undo.config_before is not None:
        write_whole(undo.config_path, undo.config_before)
    elif now is not None:
        os.unlink(undo.config_path)
    os.unlink(undo_path(data_dir))
    return Undone(undo.config_path, undo.config_before is None, undo.system_before, failed)
