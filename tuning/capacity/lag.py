"""How far a slow group falls behind, and how long it needs to catch up. Pure."""

from __future__ import annotations

import msgspec

from ringlog.errors import InvalidRequest


class Lag(msgspec.Struct, frozen=True):
    """A group that was too slow for a while."""

    behind_records: float
    behind_bytes: float
    catch_up_s: float | None
    """None: it never does."""
    kept: bool
    """All that it is behind was still kept when it read it: retention is longer than its lag."""


def lag_of(
    *,
    in_per_s: float,
    handled_per_s: float,
    slow_s: float,
    recover_per_s: float,
    record_bytes: float,
    retention_s: float,
) -> Lag:
    """A group that handles less than comes in for a time, and more afterwards.

    >>> lag = lag_of(in_per_s=1e6, handled_per_s=0.8e6, slow_s=300, recover_per_s=1.2e6, record_bytes=1000,
    ...              retention_s=604800)
    >>> lag.behind_records, lag.catch_up_s
    (60000000.0, 300.0)
    """
    if handled_per_s < 0 or slow_s < 0 or recover_per_s < 0:
        raise InvalidRequest("a group handles 0 or more records a second, for 0 or more seconds")
    behind = max(0.0, round((in_per_s - handled_per_s) * slow_s, 3))
    spare = round(recover_per_s - in_per_s, 6)
    catch_up_s = 0.0 if behind == 0 else behind / spare if spare > 0 else None
    # What it reads at the end of the slow time came in when it should have handled as much.
    behind_s = behind / in_per_s if in_per_s else 0.0
    return Lag(
        behind, behind * record_bytes, catch_up_s, behind_s <= retention_s and (catch_up_s is not None)
    )
