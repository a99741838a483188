"""Assignors: every partition has one reader that wants it, shares are even, and sticky moves no more than it must."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlog.coordination.assignors import ASSIGNORS, sticky
from ringlog.model import TopicPartition
from tests.support.amounts import amount

TOPICS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 7), max_size=4)
UNLIKE = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(6)]),
    st.frozensets(st.sampled_from("abcd"), max_size=4),
    max_size=6,
)
FEW = settings(max_examples=amount(80, 3000), deadline=None)


def all_of(topics, members):
    read = {topic for names in members.values() for topic in names}
    return {
        TopicPartition(topic, index) for topic in topics if topic in read for index in range(topics[topic])
    }


def frozen(assignment):
    return {member: frozenset(some) for member, some in assignment.items()}


@pytest.mark.parametrize("name", ASSIGNORS)
@FEW
@given(members=UNLIKE, topics=TOPICS, before=st.data())
def test_every_partition_has_exactly_one_reader_that_reads_its_topic(name, members, topics, before):
    had = frozen(sticky(before.draw(UNLIKE), before.draw(TOPICS), {}))
    assigned = ASSIGNORS[name](members, topics, had)
    assert assigned.keys() == members.keys()
    given_out = [tp for some in assigned.values() for tp in some]
    assert sorted(given_out) == sorted(all_of(topics, members))
    assert all(tp.topic in members[member] for member, some in assigned.items() for tp in some)


@FEW
@given(members=UNLIKE, topics=TOPICS)
def test_no_single_move_would_make_two_members_more_equal(members, topics):
    assigned = sticky(members, topics, {})
    for giver, some in assigned.items():
        for taker in members:
            if len(some) - len(assigned[taker]) >= 2:
                assert not any(tp.topic in members[taker] for tp in some), f"{giver} could give to {taker}"


@FEW
@given(members=UNLIKE, topics=TOPICS)
def test_sticky_leaves_what_is_even_as_it_is(members, topics):
    once = sticky(members, topics, {})
    assert sticky(members, topics, frozen(once)) == once


@FEW
@given(count=st.integers(1, 8), partitions=st.integers(0, 40))
def test_when_one_joins_or_leaves_only_its_share_moves(count, partitions):
    def team(size):
        return {f"m{n}": frozenset("a") for n in range(size)}

    few = sticky(team(count), {"a": partitions} if partitions else {}, {})
    more = sticky(team(count + 1), {"a": partitions} if partitions else {}, frozen(few))
    moved = sum(len(some - few.get(member, set())) for member, some in more.items())
    assert moved == len(more[f"m{count}"]) == partitions // (count + 1)
    back = sticky(team(count), {"a": partitions} if partitions else {}, frozen(more))
    assert all(more[member] <= back[member] for member in back), "who stays keeps all"
    assert max(map(len, back.values())) - min(map(len, back.values())) <= 1


def test_range_gives_the_same_indexes_of_equally_cut_topics():
    both = frozenset({"a", "b"})
    first = ASSIGNORS["range"]({"x": both, "y": both}, {"a": 4, "b": 4}, {})["x"]
    assert {tp.partition for tp in first if tp.topic == "a"} == {
        tp.partition for tp in first if tp.topic == "b"
    }


def test_a_thousand_partitions_among_fifty_are_assigned_in_no_time():
    members = {f"m{n:02}": frozenset({f"t{n % 3}", "all"}) for n in range(50)}
    assigned = sticky(members, {"t0": 100, "t1": 100, "t2": 100, "all": 700}, {})
    assert sorted({len(some) for some in assigned.values()}) == [20]
