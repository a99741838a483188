"""Writes settings into the text of a node's configuration file and leaves the rest of it alone. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tuning.advice.setting import TOPIC_DEFAULTS, Setting, Value

BEGIN = "# -- by `ringlog tune`: it replaces what stands between these two lines --"
END = "# -- end of what `ringlog tune` wrote --"
REPLACED = "# replaced by `ringlog tune`: "
_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_ASSIGNMENT = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")


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
    own = without_block(old)
    # What stands behind the first heading of a table belongs to that table: ours goes before it.
    tables_at = next((at for at, line in enumerate(own) if line.lstrip().startswith("[")), len(own))
    tables = own[tables_at:]
    topics_at = next((at for at, line in enumerate(tables) if _table_of(line) == TOPIC_DEFAULTS), None)
    # TOML lets nobody add to a table from outside it: defaults of topics go where the operator has theirs.
    inside = [setting for setting in settings if setting.of_topics and topics_at is not None]
    outside = [setting for setting in settings if setting not in inside]
    kept = _without(_opened(own[:tables_at]), {_path_of(setting) for setting in outside})
    while kept and not kept[-1].strip():
        kept.pop()
    lines = [*kept, ""] if kept else []
    lines += _block([f"# {heading}"], outside, under=TOPIC_DEFAULTS)
    if inside and topics_at is not None:
        tables = _with_topics(tables, topics_at, inside)
    return "\n".join([*lines, "", *tables] if tables else lines) + "\n"


def _block(first: Sequence[str], settings: Sequence[Setting], under: str = "") -> list[str]:
    """The lines between our marks. Outside its table, a default of topics is named with it."""
    lines = [BEGIN, *first]
    for setting in settings:
        path = [under, setting.name] if setting.of_topics and under else [setting.name]
        name = ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part) for part in path)
        lines += [f"# {setting.reason}", f"{name} = {toml_value(setting.value)}"]
    return [*lines, END]


def _with_topics(tables: Sequence[str], at: int, settings: Sequence[Setting]) -> list[str]:
    """The tables of a file with settings at the start of that of topics, whose heading stands at `at`."""
    after = tables[at + 1 :]
    end = next((number for number, line in enumerate(after) if line.lstrip().startswith("[")), len(after))
    own = _without(after[:end], {(setting.name,) for setting in settings})
    return [*tables[: at + 1], *_block([], settings), *own, *after[end:]]


def _opened(lines: Sequence[str]) -> list[str]:
    """With a line for each default of topics, instead of one for all: TOML lets nobody add to such a line.

    >>> _opened(['topic_defaults = {flush = "os", "segment.ms" = 5}'])
    ['topic_defaults."flush" = "os"', 'topic_defaults."segment.ms" = 5']
    """
    found: list[str] = []
    for line in lines:
        values = _inline(line) if _name_of(line) == (TOPIC_DEFAULTS,) else None
        if values is None:
            found.append(line)
        else:
            found += [
                f"{TOPIC_DEFAULTS}.{json.dumps(name)} = {toml_value(value)}" for name, value in values.items()
            ]
    return found


def _inline(line: str) -> Mapping[str, Any] | None:
    """The table that a line sets; None when that is no table: whoever reads the whole file says what is wrong."""
    try:
        value = next(iter(tomllib.loads(line).values()))
    except tomllib.TOMLDecodeError:
        return None
    return value if isinstance(value, Mapping) else None


def _without(lines: Sequence[str], names: Collection[tuple[str, ...]]) -> list[str]:
    """With every line that sets one of the names as a comment."""
    return [REPLACED + line.strip() if _name_of(line) in names else line for line in lines]


def _path_of(setting: Setting) -> tuple[str, ...]:
    return (TOPIC_DEFAULTS, setting.name) if setting.of_topics else (setting.name,)


def _name_of(line: str) -> tuple[str, ...]:
    """What a line sets; nothing when it sets nothing.

    >>> _name_of('topic_defaults . "segment.bytes"= 5'), _name_of("# shards = 2")
    (('topic_defaults', 'segment.bytes'), ())
    """
    found = _ASSIGNMENT.match(line)
    return tuple(part.strip("\"'") for part in re.findall(_NAME, found[1])) if found else ()


def _table_of(line: str) -> str:
    """The table that a line is the heading of.

    >>> _table_of(' [ "topic_defaults" ] # ours'), _table_of("[[list]]")
    ('topic_defaults', '')
    """
    found = _TABLE.match(line)
    return found[1].strip("\"'") if found else ""


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
