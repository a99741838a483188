"""Futures in coroutines: awaited as others are, without holding up the event loop, cancelled without a trace."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ringlog.client.futures import BatchState, ManyFuture, Part, RecordFuture
from ringlog.errors import DiskFull


@pytest.fixture
def state():
    made = BatchState("orders", 3)
    made.count = 2
    return made


def later(call, *arguments):
    """On another thread, as the I/O thread does it."""
    threading.Timer(0.05, call, arguments).start()


def test_a_record_is_awaited_while_the_loop_does_other_things(state):
    async def main():
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        later(state.resolve, 40, "flushed")
        stands = await RecordFuture((state, 1))
        counting.cancel()
        return stands, turns

    stands, turns = asyncio.run(main())
    assert (stands.partition, stands.offset, stands.durability) == (3, 41, "flushed")
    assert turns > 10


def test_what_is_done_already_is_there_at_once(state):
    async def main():
        state.resolve(40, "flushed")
        return await RecordFuture((state, 0))

    assert asyncio.run(main()).offset == 40


def test_what_failed_is_raised(state):
    async def main():
        later(state.fail, DiskFull("orders-3: no room"))
        await RecordFuture((state, 0))

    with pytest.raises(DiskFull, match="no room"):
        asyncio.run(main())


def test_many_records_are_awaited_together_in_either_way(state):
    async def main():
        later(state.resolve, 40, "flushed")
        many = ManyFuture([Part(state, 0, 2)])
        each = asyncio.gather(*(RecordFuture((state, index)) for index in range(2)))
        return await many, await each

    [part], each = asyncio.run(main())
    assert (part.base_offset, part.count) == (40, 2)
    assert [one.offset for one in each] == [40, 41]


def test_nothing_to_send_is_done():
    async def main():
        return await ManyFuture([])

    assert asyncio.run(main()) == []


def test_who_gives_up_is_not_woken_and_the_record_goes_on(state):
    failures = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
        future = RecordFuture((state, 0))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.01)
        state.resolve(40, "flushed")
        await asyncio.sleep(0)
        return await future

    assert asyncio.run(main()).offset == 40
    assert not failures


def test_an_answer_after_the_loop_was_closed_troubles_nobody(state, monkeypatch):
    failures = []
    monkeypatch.setattr(threading, "excepthook", failures.append)

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(RecordFuture((state, 0)), 0.01)

    asyncio.run(main())
    state.resolve(40, "flushed")
    assert not failures
