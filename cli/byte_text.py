"""Bytes of records as text, so that nothing is lost: one form for JSON, one for lines that people read."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any

_NOT_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\Ab['\"]")
"""Control characters, which could steer a terminal; and text that looks like our own form for bytes."""

_OUR_FORM = ("b'", 'b"')
_ASCII_CONTROLS = bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")
_OTHER_CONTROLS = re.compile(rb"\xc2[\x80-\x9f]")


def json_bytes(value: bytes | None) -> str | dict[str, str] | None:
    r"""Bytes in JSON: a string where they are UTF-8, else an object with their base64.

    >>> json_bytes(b"lamp"), json_bytes(b"\xff"), json_bytes(None)
    ('lamp', {'base64': '/w=='}, None)
    """
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def bytes_of_json(value: Any) -> bytes | None:
    r"""The bytes that `json_bytes` was given. Any other JSON object, list or number is sent as its JSON text.

    >>> bytes_of_json({"base64": "/w=="}), bytes_of_json(None), bytes_of_json({"watt": 40})
    (b'\xff', None, b'{"watt":40}')
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and list(value) == ["base64"]:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as wrong:
            raise ValueError(f"what stands under base64 cannot be read: {wrong}") from None
    import msgspec

    return msgspec.json.encode(value)


def line_text(value: bytes | None) -> str:
    r"""Bytes in a line: text as it is; what is none as Python writes bytes, and text that looks so, too.

    `ast.literal_eval` reads back what begins with b' or b". Null is empty.

    >>> print(line_text(b"C:\\new"), line_text(b"\xffa\n"), line_text(b"b'x'"))
    C:\new b'\xffa\n' b"b'x'"
    """
    if value is None:
        return ""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return repr(value)
    if text.isprintable() and not text.startswith(_OUR_FORM):
        return text  # nearly always, and many times faster than the search
    return repr(value) if _NOT_TEXT.search(text) else text


def lines_text(values: Sequence[bytes | None]) -> str:
    r"""Each value on a line, as `line_text` has it; text, which most values are, is not looked at one by one.

    >>> lines_text([b"on", None, b"\xff"])
    "on\n\nb'\\xff'\n"
    """
    if not values:
        return ""
    joined = b"\n".join([value or b"" for value in values])
    is_plain = (
        len(joined.translate(None, _ASCII_CONTROLS)) == len(joined)
        and not _OTHER_CONTROLS.search(joined)
        and not joined.startswith((b"b'", b'b"'))
        and b"\nb'" not in joined
        and b'\nb"' not in joined
    )
    if is_plain:
        try:
            # Whole only if every value is: no letter of UTF-8 reaches over a line break.
            return joined.decode("utf-8") + "\n"
        except UnicodeDecodeError:
            return _each_line(values)
    return _each_line(values)


def _each_line(values: Sequence[bytes | None]) -> str:
    return "".join([line_text(value) + "\n" for value in values])
