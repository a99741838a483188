"""The doctor's findings as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from cli.counted import counted
from cli.printable import printable
from cli.screen import Screen

if TYPE_CHECKING:
    from tuning.doctor.finding import Finding

_COLOURS = {"ok": "green", "slow": "yellow", "broken": "bold red"}
_WIDTH_MAX = 10_000


def print_findings(findings: Sequence[Finding], *, show_all: bool = False) -> None:
    """A line for each check, and under those that found something the cost and the fix."""
    # As wide as it needs to be: commands are copied from here, and must not be cut.
    screen = Screen(width=_WIDTH_MAX)
    name_chars = max(len(finding.check) for finding in findings)
    for finding in findings:
        level = str(finding.level)
        line = Text(f"{level:7}", style=_COLOURS[level])
        line.append(f"{finding.check:{name_chars + 2}}{printable(finding.found)}", style="default")
        if level != "ok" or show_all:
            line.append(f"; wanted: {printable(finding.wanted)}", style="default")
        screen.print(line, soft_wrap=True)
        indent = " " * (7 + name_chars + 2)
        if finding.cost:
            screen.print(Text(f"{indent}costs: {finding.cost}"), soft_wrap=True)
        if finding.fix:
            screen.print(Text(f"{indent}fix:   {printable(finding.fix)}"), soft_wrap=True)
    print(summary(findings))


def summary(findings: Sequence[Finding]) -> str:
    """The last line."""
    broken = sum(finding.level == "broken" for finding in findings)
    slow = sum(finding.level == "slow" for finding in findings)
    if not broken and not slow:
        return f"{counted(len(findings), 'check')}, and all is as it should be."
    parts = [f"{counted(broken, 'thing')} must be fixed"] if broken else []
    parts += [f"{counted(slow, 'thing')} cost{'s' if slow == 1 else ''} speed"] if slow else []
    return f"{counted(len(findings), 'check')}: {', '.join(parts)}."
