"""Puts advice into effect: the node's configuration file, and, if that is wanted, values of the kernel."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from ringlog.config import config_path_of, load_config
from tuning.advice.setting import Advice, SystemChange
from tuning.apply.config_text import tuned_text
from tuning.apply.undo import (
    Undo,
    kernel_value,
    load_undo,
    read_text,
    save_undo,
    undo_path,
    write_kernel,
    write_whole,
)
from tuning.doctor.finding import KernelSetting


class Applied(msgspec.Struct, frozen=True):
    """What was changed."""

    config_path: str
    undo_path: str
    system: list[KernelSetting]
    failed: list[str]
    """Values of the kernel that it refused, with the reason."""


def put(advice: Advice, data_dir: str, *, heading: str, system: Sequence[SystemChange] = ()) -> Applied:
    """Write the settings into the file that a node of this directory reads, and `system` to the kernel. What was before
    is in the undo file first; what was there before an earlier tune stays what an undo goes back to."""
    os.makedirs(data_dir, mode=0o700, exist_ok=True)
    path = config_path_of(data_dir)
    before = read_text(path)
    text = tuned_text(before or "", advice.settings, heading)
    _require_valid(text, path, data_dir)
    undo = load_undo(data_dir) or Undo(config_path=path, config_before=before)
    undo.config_written = text
    known = {setting.path for setting in undo.system_before}
    wanted = [change.setting for change in system]
    undo.system_before += [
        KernelSetting(setting.path, kernel_value(setting.path))
        for setting in wanted
        if setting.path not in known
    ]
    save_undo(data_dir, undo)
    write_whole(path, text)
    failed = write_kernel(wanted)
    return Applied(path, undo_path(data_dir), wanted, failed)


def _require_valid(text: str, path: str, data_dir: str) -> None:
    """Refuse before anything is changed what a node would refuse at its start."""
    trial = f"{path}.trial"
    write_whole(trial, text)
    try:
        load_config(trial, data_dir=data_dir)
    finally:
        os.unlink(trial)
