"""Who is to read what: range, round robin, and sticky, which moves as little as it can. Pure, and deterministic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from ringlog.model import TopicPartition

Members = Mapping[str, frozenset[str]]
"""The topics that each member reads. Members are served in the order of the mapping."""
Assignment = dict[str, set[TopicPartition]]
Assignor = Callable[[Members, Mapping[str, int], Mapping[str, frozenset[TopicPartition]]], Assignment]
"""(members, partitions of each topic, what each had before) → what each is to have. Every partition of a topic that
somebody reads has exactly one reader, and that reads the topic."""


def range_assignor(
    members: Members, topics: Mapping[str, int], before: Mapping[str, frozenset[TopicPartition]]
) -> Assignment:
    """Each topic is cut into runs of neighbours, so that members read the same indexes of equally cut topics.

    >>> both = frozenset({"t"})
    >>> [sorted(tp.partition for tp in some) for some in range_assignor({"a": both, "b": both}, {"t": 5}, {}).values()]
    [[0, 1, 2], [3, 4]]
    """
    assigned: Assignment = {member: set() for member in members}
    for topic in sorted(topics):
        readers = [member for member, names in members.items() if topic in names]
        if not readers:
            continue
        share, over = divmod(topics[topic], len(readers))
        at = 0
        for place, member in enumerate(readers):
            count = share + (place < over)
            assigned[member].update(TopicPartition(topic, index) for index in range(at, at + count))
            at += count
    return assigned


def round_robin(
    members: Members, topics: Mapping[str, int], before: Mapping[str, frozenset[TopicPartition]]
) -> Assignment:
    """All partitions in a row, dealt out in turn.

    >>> both = frozenset({"t"})
    >>> [sorted(tp.partition for tp in some) for some in round_robin({"a": both, "b": both}, {"t": 5}, {}).values()]
    [[0, 2, 4], [1, 3]]
    """
    assigned: Assignment = {member: set() for member in members}
    names = list(members)
    turn = 0
    for topic in sorted(topics):
        if not any(topic in some for some in members.values()):
            continue
        for index in range(topics[topic]):
            while topic not in members[names[turn % len(names)]]:
                turn += 1
            assigned[names[turn % len(names)]].add(TopicPartition(topic, index))
            turn += 1
    return assigned


def sticky(
    members: Members, topics: Mapping[str, int], before: Mapping[str, frozenset[TopicPartition]]
) -> Assignment:
    """As even as it can be, and everyone keeps as much of what they had as that allows.

    >>> both = frozenset({"t"})
    >>> had = {"a": frozenset(TopicPartition("t", index) for index in range(4))}
    >>> [sorted(tp.partition for tp in some) for some in sticky({"a": both, "b": both}, {"t": 4}, had).values()]
    [[0, 1], [2, 3]]
    """
    kept: dict[str, list[TopicPartition]] = {member: [] for member in members}
    free = {
        TopicPartition(topic, index)
        for topic, count in topics.items()
        if any(topic in names for names in members.values())
        for index in range(count)
    }
    for member, names in members.items():
        for tp in sorted(before.get(member, ())):
            if tp in free and tp.topic in names:
                kept[member].append(tp)
                free.discard(tp)
    if len({frozenset(names & topics.keys()) for names in members.values()}) <= 1:
        _level(kept, free)
    else:
        _level_unlike(members, kept, free)
    return {member: set(some) for member, some in kept.items()}


ASSIGNORS: dict[str, Assignor] = {"sticky": sticky, "range": range_assignor, "round_robin": round_robin}
"""By name; the first is the default."""


def _level(kept: dict[str, list[TopicPartition]], free: set[TopicPartition]) -> None:
    """All read the same topics: everyone has its share, and those that had the most get the odd ones."""
    if not kept:
        return
    total = len(free) + sum(map(len, kept.values()))
    share, over = divmod(total, len(kept))
    richest = sorted(kept, key=lambda member: -len(kept[member]))  # stable: equals in their order
    quota = {member: share + (place < over) for place, member in enumerate(richest)}
    for member, some in kept.items():
        free.update(some[quota[member] :])
        del some[quota[member] :]
    left = iter(sorted(free))
    for member, some in kept.items():
        some.extend(next(left) for _ in range(quota[member] - len(some)))


def _level_unlike(members: Members, kept: dict[str, list[TopicPartition]], free: set[TopicPartition]) -> None:
    """Not all read the same: give what is free to whoever has least, then move single partitions until no move from
    one member to another would bring the two closer together."""
    readers: dict[str, list[str]] = defaultdict(list)
    for member, names in members.items():
        for topic in names:
            readers[topic].append(member)
    # First those topics that few can read: the others can still make up for them.
    for tp in sorted(free, key=lambda tp: (len(readers[tp.topic]), tp)):
        kept[min(readers[tp.topic], key=lambda member: len(kept[member]))].append(tp)
    moved = True
    while moved:
        moved = False
        for giver in sorted(kept, key=lambda member: -len(kept[member])):
            moved = _give_away(giver, kept, readers) or moved


def _give_away(giver: str, kept: dict[str, list[TopicPartition]], readers: Mapping[str, list[str]]) -> bool:
    """Move one partition at a time to the poorest who can read it, while that makes two members more equal."""
    gave = False
    mine = kept[giver]
    while True:
        poorest = {
            topic: min(readers[topic], key=lambda member: len(kept[member]))
            for topic in {tp.topic for tp in mine}
        }
        taker_of = {topic: taker for topic, taker in poorest.items() if len(kept[taker]) + 2 <= len(mine)}
        if not taker_of:
            return gave
        topic = min(taker_of, key=lambda topic: (len(kept[taker_of[topic]]), topic))
        at = max(place for place, tp in enumerate(mine) if tp.topic == topic)
        kept[taker_of[topic]].append(mine.pop(at))
        gave = True
