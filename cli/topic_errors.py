"""Says of a topic that is not there what its name may have been meant to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cli.near import did_you_mean
from ringlog.errors import RinglogError, UnknownTopic

if TYPE_CHECKING:
    from ringlog import Admin


@contextmanager
def naming_near_topics(name: str, open_admin: Callable[[], Admin]) -> Iterator[None]:
    """Let UnknownTopic name the topics whose names are near."""
    try:
        yield
    except UnknownTopic as unknown:
        known = _known(open_admin)
        if known is not None and name in known:
            raise  # a partition is missing, and not the topic
        raise UnknownTopic(f"there is no topic {name!r}. {_suggestion(name, known)}") from unknown


def words_if_new(name: str, open_admin: Callable[[], Admin]) -> str:
    """What to say when a topic was made by sending to it: its name was mistyped, perhaps. Empty when it is there."""
    known = _known(open_admin)
    if known is None or name in known:
        return ""
    return f"ringlog: there was no topic {name!r}: it is created. {did_you_mean(name, known)}".rstrip()


def _known(open_admin: Callable[[], Admin]) -> list[str] | None:
    """None: the first error is the one to tell of; without the list it is told without a suggestion."""
    try:
        with open_admin() as admin:
            return admin.list_topics()
    except RinglogError:
        return None


def _suggestion(name: str, known: list[str] | None) -> str:
    if known is None:
        return f"Create it: ringlog topic create {name}"
    if not known:
        return f"There is none yet; create it: ringlog topic create {name}"
    question = did_you_mean(name, known)
    return question or "`ringlog topic list` shows those that are there."
