"""What `ringlog tune` tells people."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.screen import print_table
from tuning.report.tune_page import machine_text, value_text

if TYPE_CHECKING:
    from tuning.advice.setting import Advice, SystemChange
    from tuning.apply.put import Applied
    from tuning.apply.undo import Undone
    from tuning.compare import Compared
    from tuning.probe.measured import Facts


def print_advice(facts: Facts, advice: Advice) -> None:
    """The settings, then what was seen that needs none."""
    print(f"{machine_text(facts.system)}\n")
    print_table(
        (f"SETTING, {str(advice.policy).upper()}", "ADVISED", "DEFAULT", "WHY"),
        [
            (
                ("→ " if setting.changes else "  ") + setting.name,
                value_text(setting.name, setting.value),
                value_text(setting.name, setting.default),
                setting.reason,
            )
            for setting in advice.settings
        ],
    )
    print()
    for note in advice.notes:
        print(note)
    if advice.system:
        count = len(advice.system)
        print(
            f"The doctor would change {count} value{'s' if count > 1 else ''} of the kernel: see `ringlog doctor`."
        )
    print()


def print_compared(compared: Sequence[Compared]) -> None:
    """Before, after, and how many times as good."""
    print_table(
        ("LOAD", "BEFORE", "AFTER", "AS GOOD"),
        [
            (c.load.name, f"{c.before:.3g} {c.load.unit}", f"{c.after:.3g} {c.load.unit}", f"{c.gain:.2f} ×")
            for c in compared
        ],
    )
    print()


def print_system(changes: Sequence[SystemChange]) -> None:
    """The dry run."""
    print("Of the kernel, until the next boot:")
    for change in changes:
        print(f"  {change.setting.command}    # {change.check}: {change.reason}")


def print_applied(applied: Applied) -> None:
    """What was changed, and the way back."""
    print(f"Wrote {applied.config_path}. A node that runs takes it at its next start.")
    for setting in applied.system:
        if not any(failure.startswith(setting.path) for failure in applied.failed):
            print(f"Set {setting.path} to {setting.value}.")
    for failure in applied.failed:
        print(f"Refused: {failure}. Run it as root.")
    directory = shlex.quote(os.path.dirname(applied.undo_path))
    print(f"`ringlog tune --undo --data-dir {directory}` puts back what was before.")


def print_undone(undone: Undone) -> None:
    """What is as it was."""
    print(f"{'Removed' if undone.config_removed else 'Put back'} {undone.config_path}.")
    for setting in undone.system:
        if not any(failure.startswith(setting.path) for failure in undone.failed):
            print(f"Set {setting.path} to {setting.value} again.")
    for failure in undone.failed:
        print(f"Refused: {failure}. Run it as root.")
