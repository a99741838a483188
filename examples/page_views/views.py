"""Makes page views: a steady stream of JSON, in columns, with a burst in the middle and some views out of order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.page_views.job import VIEWS
from ringlog.client.producer import Producer

PAGES = 50
USERS = 10_000
OUT_OF_ORDER_MS = 5_000
"""How much later than others a view may be sent: less than the job waits."""
TICK_S = 0.1
_FIRST = 1_000
_LAST = 3_600_000
"""A last view an hour on closes every window."""


def made(rng: np.random.Generator, count: int, now_ms: int) -> tuple[Any, Any]:
    """Users (the keys) and views (the values) of one moment."""
    users = pc.binary_join_element_wise("user-", _text(rng.integers(0, USERS, count)), "")
    # A few pages get most of the views, as everywhere.
    pages = pc.binary_join_element_wise("/page/", _text(rng.geometric(0.1, count) % PAGES), "")
    times = pa.array(now_ms - rng.integers(0, OUT_OF_ORDER_MS, count), pa.timestamp("ms"))
    load = _text(rng.integers(5, 500, count))
    return users, _json(users, pages, pc.strftime(times, "%Y-%m-%dT%H:%M:%SZ"), load)


def _json(users: Any, pages: Any, times: Any, load: Any) -> Any:
    return pc.binary_join_element_wise(
        '{"user":"', users, '","page":"', pages, '","at":"', times, '","load_ms":', load, "}", ""
    )


def _text(numbers: Any) -> Any:
    return pa.array(numbers).cast(pa.string())


def rates(per_second: int, seconds: int) -> Iterator[int]:
    """How many views each tick sends: three times as many in the third fifth.

    >>> [sum(list(rates(100, 5))[at : at + 10]) for at in range(0, 50, 10)]
    [100, 100, 300, 100, 100]
    """
    ticks = round(seconds / TICK_S)
    for tick in range(ticks):
        burst = 2 * ticks <= 5 * tick < 3 * ticks
        yield round(per_second * TICK_S) * (3 if burst else 1)


def send_first(bootstrap: str) -> int:
    """Send a few views at once, for the queries to begin with; how many."""
    users, views = made(np.random.default_rng(5), _FIRST, time.time_ns() // 1_000_000)
    with Producer(bootstrap) as producer:
        producer.produce_many(VIEWS, views, keys=users)
    return _FIRST


def send(bootstrap: str, per_second: int, seconds: int) -> int:
    """Send views for some seconds, then one that closes all windows; how many views there were before it."""
    rng = np.random.default_rng(7)
    total = 0
    with Producer(bootstrap) as producer:
        began = time.monotonic()
        for tick, count in enumerate(rates(per_second, seconds)):
            users, views = made(rng, count, time.time_ns() // 1_000_000)
            producer.produce_many(VIEWS, views, keys=users)
            total += count
            time.sleep(max(0.0, began + (tick + 1) * TICK_S - time.monotonic()))
        last = pa.array([time.time_ns() // 1_000_000 + _LAST], pa.timestamp("ms"))
        at = pc.strftime(last, "%Y-%m-%dT%H:%M:%SZ")
        producer.produce_many(VIEWS, _json(pa.array(["nobody"]), pa.array(["/end"]), at, pa.array(["0"])))
    return total
