"""Where a range may be split: points at which batches begin, from the index, bounded in number."""

from __future__ import annotations

from ringlog.errors import InvalidRequest, StaleMetadata
from ringlog.limits import SPLIT_POINTS_MAX
from ringlog.net.framing import Api
from ringlog.net.messages import SplitPointsReply, SplitPointsRequest, SplitQuery, decode_body
from ringlog.net.wire_errors import number_of
from tests.support.shard_world import ShardWorld


def world_with_batches(count=60, size=1000):
    world = ShardWorld()
    world.create(1)
    for _ in range(count):
        world.produce(*[bytes(size)] * 5)  # a batch of five
    world.settle()
    world.net.take()
    return world


def ask(world, *queries):
    world.send(Api.SPLIT_POINTS, SplitPointsRequest([SplitQuery(*query) for query in queries]))
    world.settle()
    (reply,) = world.net.take()
    return decode_body(reply.body, SplitPointsReply).found


def test_points_are_where_batches_begin_inside_of_the_range():
    (found,) = ask(world_with_batches(), (1, 20, 280, 20_000))
    assert found.error == 0
    assert 8 <= len(found.offsets) <= 13
    assert all(20 < at < 280 and at % 5 == 0 for at in found.offsets)
    assert found.offsets == sorted(set(found.offsets))


def test_an_answer_has_a_bounded_number_of_points():
    (found,) = ask(world_with_batches(), (1, 0, 300, 1))
    assert 0 < len(found.offsets) <= SPLIT_POINTS_MAX
    first, second = ask(world_with_batches(), (1, 0, 300, 1), (1, 0, 300, 200_000))
    assert len(first.offsets) > len(second.offsets)
    assert second.step_bytes == 200_000


def test_a_range_beside_the_log_has_no_points():
    (found,) = ask(world_with_batches(), (1, 1000, 2000, 100))
    assert (found.error, found.offsets) == (0, [])


def test_what_is_no_range_or_not_here_is_refused_alone():
    good, wrong, away = ask(world_with_batches(), (1, 0, 300, 50_000), (1, 5, 4, 100), (9, 0, 10, 100))
    assert good.offsets
    assert wrong.error == number_of(InvalidRequest(""))
    assert away.error == number_of(StaleMetadata(""))
