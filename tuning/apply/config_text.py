"""Writes settings into the text of a node's configuration file and leaves the rest of it alone. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuning.advice.setting import Setting, Value

BEGIN = "# -- by `ringlog tune`: it replaces what stands between these two lines --"
END = "# -- end of what `ringlog tune` wrote --"
REPLACED = "# replaced by `ringlog tune`: "
_ASSIGNMENT = re.compile(r"\s*([A-Za-z0-9_-]+)\s*=")


def tuned_text(old: str, settings: Sequence[Setting], heading: str) -> str:
    """The file with the settings, each after its reason. What it had set before itself stays there as a comment.

    >>> print(tuned_text("nets = 2\\nshards = 8\\n", [Setting("shards", 2, "two cores")], "now"), end="")
    nets = 2
    # replaced by `ringlog tune`: shards = 8
    <BLANKLINE>
    # -- by `ringlog tune`: it replaces what stands between these two lines --
    # now
    # two cores
    shards = 2
    # -- end of what `ringlog tune` wrote --
    """
    names = {setting.name for setting in settings}
    own = without_block(old)
    # What stands behind the first heading of a table belongs to that table: ours goes before it.
    tables_at = next((at for at, line in enumerate(own) if line.lstrip().startswith("[")), len(own))
    kept: list[str] = []
    for line in own[:tables_at]:
        found = _ASSIGNMENT.match(line)
        kept.append(REPLACED + line.strip() if found and found[1] in names else line)
    while kept and not kept[-1].strip():
        kept.pop()
    lines = [*kept, ""] if kept else []
    lines += [BEGIN, f"# {heading}"]
    for setting in settings:
        lines += [f"# {setting.reason}", f"{setting.name} = {toml_value(setting.value)}"]
    tables = ["", *own[tables_at:]] if tables_at < len(own) else []
    return "\n".join([*lines, END, *tables]) + "\n"


def without_block(text: str) -> list[str]:
    """The lines that tune did not write."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.strip() == BEGIN:
            inside = True
        elif line.strip() == END:
            inside = False
        elif not inside:
            kept.append(line)
    return kept


def toml_value(value: Value | Mapping[str, Any]) -> str:
    """A value as TOML has it.

    >>> toml_value(True), toml_value(5), toml_value({"segment.ms": 5})
    ('true', '5', '{"segment.ms" = 5}')
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value)
