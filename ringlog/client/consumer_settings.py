"""Settings of a Consumer: Kafka's names and meanings, checked when it is made."""

from __future__ import annotations

from ringlog import limits
from ringlog.client.settings import ClientSettings
from ringlog.errors import InvalidRequest
from ringlog.net.messages import EARLIEST, LATEST

_RESETS = {"earliest": EARLIEST, "latest": LATEST, "error": None, "none": None}


class ConsumerSettings(ClientSettings, frozen=True, kw_only=True):
    """Those of a Consumer."""

    auto_offset_reset: str = "latest"
    """Where to read when there is no position, or none that the log still has: "earliest", "latest", or "error" (also
    "none") to be told by OffsetOutOfRange."""
    max_poll_records: int = 500
    """What `poll()` returns at most unless it is told otherwise."""
    fetch_min_bytes: int = 1
    """The node waits for so much before it answers, but no longer than fetch_max_wait_ms."""
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = limits.FETCH_BYTES_MAX
    """Bytes of one reply. Also how much is fetched ahead of the poller, beside what is on its way already."""
    max_partition_fetch_bytes: int = 1 * limits.MIB
    """Bytes of one partition in one reply; a single larger batch comes all the same."""
    default_api_timeout_ms: int = 60_000
    """How long calls that ask the node may take, unless they are told otherwise."""

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        if self.auto_offset_reset not in _RESETS:
            raise InvalidRequest(
                f"auto_offset_reset must be one of {', '.join(_RESETS)}, not {self.auto_offset_reset!r}"
            )
        for name, low, high in _RANGES:
            if not low <= getattr(self, name) <= high:
                raise InvalidRequest(
                    f"{name} must lie between {low} and {high}, but is {getattr(self, name)}"
                )

    @property
    def reset(self) -> int | None:
        """EARLIEST, LATEST, or None to raise."""
        return _RESETS[self.auto_offset_reset]


_RANGES = (
    ("max_poll_records", 1, 2**31 - 1),
    ("fetch_min_bytes", 0, limits.FETCH_BYTES_MAX),
    ("fetch_max_wait_ms", 0, limits.FETCH_WAIT_MS_MAX),
    ("fetch_max_bytes", 1, limits.FETCH_BYTES_MAX),
    ("max_partition_fetch_bytes", 1, limits.FETCH_BYTES_MAX),
    ("default_api_timeout_ms", 1, 2**31 - 1),
)
