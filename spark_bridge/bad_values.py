"""Values that are not what `valueSchema` says, by option `mode`: the query ends, they are null, or rows are left out.

The names are those of Spark's own readers. What becomes of a value depends on nothing but the value: a range that is
read again in other pieces has the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ringlog.errors import BadValue
from ringlog.model import TopicPartition

FAIL, NULL, DROP = MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
"""The first is the default: nothing is skipped that nobody asked to skip."""
CORRUPT = "_corrupt_record"
"""A column of `valueSchema` that is no part of a document: with PERMISSIVE, the text of one that is bad."""

log = logging.getLogger(__name__)


class BadValues:
    """What one partition's reader does with them."""

    def __init__(self, tp: TopicPartition, mode: str = FAIL) -> None:
        self._tp = tp
        self.mode = mode

    def fail(self, offset: int, what: str, why: Exception) -> BadValue:
        """The error of a query that is to end."""
        reason = str(why).removesuffix(" in row 0").rstrip(".")
        return BadValue(
            f"{self._tp}, offset {offset}: its value is no {what} of the columns in valueSchema: {reason}. Start the "
            f"query again with option mode={NULL}, which makes such values null, or mode={DROP}, which leaves "
            "their rows out; valueFormat=binary reads them as they are"
        )

    def tell(self, offsets: Sequence[int], what: str) -> None:
        """Say in the executor's log that some were met."""
        log.warning(
            "%s: %d values are no %s of the columns in valueSchema, the first at offset %d: %s (mode=%s)",
            self._tp,
            len(offsets),
            what,
            offsets[0],
            "they are null" if self.mode == NULL else "their rows are left out",
            self.mode,
        )
