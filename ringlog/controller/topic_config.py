"""The settings of a topic by the names that Kafka's users know, and the log settings that they stand for. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ringlog.errors import InvalidRequest
from ringlog.limits import (
    BATCH_HEADER_BYTES,
    FRAME_BYTES_MAX,
    SEGMENT_BYTES_DEFAULT,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SEGMENT_MS_DEFAULT,
)
from ringlog.ring.frame import FRAME_HEADER_BYTES

MESSAGE_BYTES_MAX = FRAME_BYTES_MAX - FRAME_HEADER_BYTES


class Setting(NamedTuple):
    """A setting of a topic: its default, what it means, and who checks it."""

    default: str
    meaning: str
    check: Callable[[str], None]


def _whole_number(low: int, high: int) -> Callable[[str], None]:
    def check(text: str) -> None:
        # Length and letters first: int() takes digits of all scripts, and raises on very many.
        if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise InvalidRequest(f"use a whole number from {low} to {high}")

    return check


def _one_of(*words: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text not in words:
            raise InvalidRequest(f"use {' or '.join(words)}")

    return check


def _flush_policy(text: str) -> None:
    if not re.fullmatch(r"ack|os|interval:[1-9][0-9]{0,6}", text):
        raise InvalidRequest("use ack, interval:MS (1 to 9999999) or os")


SETTINGS: dict[str, Setting] = {
    "flush": Setting(
        "ack", "when records are flushed: ack (before the ack), interval:MS or os", _flush_policy
    ),
    "segment.bytes": Setting(
        str(SEGMENT_BYTES_DEFAULT),
        "a segment file is closed at this size",
        _whole_number(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
    ),
    "segment.ms": Setting(str(SEGMENT_MS_DEFAULT), "or at this age", _whole_number(1, 2**62)),
    "max.message.bytes": Setting(
        str(1024 * 1024 + BATCH_HEADER_BYTES),
        "largest batch",
        _whole_number(BATCH_HEADER_BYTES + 1, MESSAGE_BYTES_MAX),
    ),
    "message.timestamp.type": Setting(
        "CreateTime", "whose clock records have", _one_of("CreateTime", "LogAppendTime")
    ),
}


def check_config(config: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a setting that there is none of, or a value that it cannot have.

    >>> check_config({"flush": "ack", "segment.bytes": "1048576"})
    """
    for name, value in config.items():
        setting = SETTINGS[require_setting(name)]
        try:
            setting.check(value)
        except InvalidRequest as wrong:
            raise InvalidRequest(f"{name}={value!r}: {wrong}") from None


def require_setting(name: str) -> str:
    """The name, if there is a setting of that name; InvalidRequest names the nearest otherwise."""
    if name not in SETTINGS:
        near = difflib.get_close_matches(name, SETTINGS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(SETTINGS)}"
        raise InvalidRequest(f"no topic setting is named {name!r}; {hint}")
    return name


def with_defaults(config: Mapping[str, str]) -> dict[str, str]:
    """All settings of a topic."""
    return {name: config.get(name, setting.default) for name, setting in SETTINGS.items()}
