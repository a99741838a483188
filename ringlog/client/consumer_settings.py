"""Settings of a Consumer: Kafka's names and meanings, checked when it is made."""

from __future__ import annotations

from ringlog import limits
from ringlog.client.settings import ClientSettings, check_text
from ringlog.errors import InvalidRequest
from ringlog.net.messages import EARLIEST, LATEST

_RESETS = {"earliest": EARLIEST, "latest": LATEST, "error": None, "none": None}
_ASSIGNORS = ("sticky", "range", "round_robin")


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
    client_rack: str = ""
    """Where this client stands: it reads from replicas in the same rack (`ringlog start --rack`) that are in sync."""
    default_api_timeout_ms: int = 60_000
    """How long calls that ask the node may take, unless they are told otherwise."""

    group_instance_id: str | None = None
    """A name of this process within its group: restarted within session_timeout_ms, it has the same partitions."""
    session_timeout_ms: int = limits.SESSION_TIMEOUT_MS_DEFAULT
    """A member of which the node hears nothing for so long has left. The client's own thread is what it hears: a slow
    handler does no harm."""
    group_assignor: str = "sticky"
    """"sticky", "range" or "round_robin"; the node does what most members ask for."""
    enable_auto_commit: bool = True
    """With a group: commit what earlier polls returned, from time to time, when partitions move away and on close."""
    auto_commit_interval_ms: int = 5_000

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        if self.auto_offset_reset not in _RESETS:
            raise InvalidRequest(
                f"auto_offset_reset must be one of {', '.join(_RESETS)}, not {self.auto_offset_reset!r}"
            )
        if self.group_assignor not in _ASSIGNORS:
            raise InvalidRequest(
                f"group_assignor must be one of {', '.join(_ASSIGNORS)}, not {self.group_assignor!r}"
            )
        if self.group_instance_id is not None and not self.group_instance_id:
            raise InvalidRequest("group_instance_id must not be empty: leave it out")
        check_text(group_instance_id=self.group_instance_id or "", client_rack=self.client_rack)
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
    ("session_timeout_ms", limits.SESSION_TIMEOUT_MS_MIN, limits.SESSION_TIMEOUT_MS_MAX),
    ("auto_commit_interval_ms", 1, 2**31 - 1),
)
