"""The topics that there are, as groups see them, and which of them a member means. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

INTERNAL_PREFIX = "__"


class TopicInfo(NamedTuple):
    """A topic that was deleted and made anew has another id."""

    topic_id: int
    partitions: int


Catalogue = Mapping[str, TopicInfo]


def subscribed_topics(catalogue: Catalogue, topics: Iterable[str], pattern: str | None) -> frozenset[str]:
    """The topics that are there of those that a member names, and all that fit its pattern.

    A pattern is a shell's, not a regular expression: those can take forever, and the node has no time for that. The
    node's own topics fit no pattern.

    >>> there = {name: TopicInfo(1, 1) for name in ("orders-eu", "orders-us", "clicks", "__consumer_offsets")}
    >>> sorted(subscribed_topics(there, ["clicks", "missing"], "orders-*"))
    ['clicks', 'orders-eu', 'orders-us']
    >>> sorted(subscribed_topics(there, [], "*"))
    ['clicks', 'orders-eu', 'orders-us']
    """
    found = {name for name in topics if name in catalogue}
    if pattern is not None:
        fits = _compiled(pattern).fullmatch
        found |= {name for name in catalogue if not name.startswith(INTERNAL_PREFIX) and fits(name)}
    return frozenset(found)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))
