"""Settings of a whole cluster, which can be changed while it runs: their names, and what each may be. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ringlog.controller.commands import Outcome
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import ClusterSettings
from ringlog.errors import InvalidRequest
from ringlog.limits import MOVE_BYTES_PER_S_MIN
from ringlog.net.move_messages import (
    LEADER_BALANCE,
    MOVE_BYTES_PER_S,
    AlterClusterReply,
    AlterClusterRequest,
)

LOAD, PREFERRED = "load", "preferred"


def _require_rate(value: str) -> None:
    if not (value.isascii() and value.isdigit() and int(value) >= MOVE_BYTES_PER_S_MIN):
        raise InvalidRequest(
            f"{MOVE_BYTES_PER_S}={value[:40]!r}: use a number of bytes, {MOVE_BYTES_PER_S_MIN:,} or more"
        )


def _require_balance(value: str) -> None:
    if value not in (LOAD, PREFERRED):
        raise InvalidRequest(f"{LEADER_BALANCE}={value[:40]!r}: use {LOAD} or {PREFERRED}")


SETTINGS: dict[str, Callable[[str], None]] = {
    MOVE_BYTES_PER_S: _require_rate,
    LEADER_BALANCE: _require_balance,
}
"""All names, each with what raises InvalidRequest for a value that cannot be."""


def alter_cluster(image: MetadataImage, request: AlterClusterRequest) -> Outcome:
    """Other settings for the cluster; those that are not named stay."""
    settings = dict(image.settings)
    for name, value in request.settings.items():
        if name not in SETTINGS:
            known = ", ".join(SETTINGS)
            raise InvalidRequest(f"a cluster has no setting {name[:100]!r}. There are: {known}")
        if value is None:
            settings.pop(name, None)
        else:
            SETTINGS[name](value)
            settings[name] = value

    def reply(after: MetadataImage) -> AlterClusterReply:
        return AlterClusterReply(dict(after.settings), after.version)

    return Outcome([ClusterSettings(settings)] if settings != image.settings else [], reply)


def move_bytes_per_s(settings: Mapping[str, str]) -> int | None:
    """How fast a node may be filled by moves; None: as fast as it goes.

    >>> move_bytes_per_s({"move.bytes.per.s": "1000000"}), move_bytes_per_s({})
    (1000000, None)
    """
    value = settings.get(MOVE_BYTES_PER_S)
    return int(value) if value is not None else None


def balances_load(settings: Mapping[str, str]) -> bool:
    """Whether leaders may be chosen by what there is to do.

    >>> balances_load({}), balances_load({"leader.balance": "preferred"})
    (True, False)
    """
    return settings.get(LEADER_BALANCE, LOAD) == LOAD
