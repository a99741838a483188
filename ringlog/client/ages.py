"""How old the records at given offsets are: what a group that stands there is behind in time."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ringlog.client.connection import Connection
from ringlog.client.rounds import places
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import FetchPartition, FetchRequest, encode_body, unpack_fetch_reply
from ringlog.records.decode import decode


def timestamps_at(
    connection: Connection, offsets: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, int]:
    """The timestamp of the first record at or after each offset; nothing for partitions that have none there, or that
    cannot be read now."""
    lanes: dict[int, dict[int, TopicPartition]] = {}
    for tp, place in places(connection, offsets, timeout_s).items():
        lanes.setdefault(place.lane, {})[place.partition] = tp
    found: dict[TopicPartition, int] = {}
    for some in lanes.values():
        wants = [FetchPartition(partition, offsets[tp], 1) for partition, tp in some.items()]
        # So large that every partition has room for the one batch that is always served whole.
        request = encode_body(FetchRequest(0, 0, 0, 2**62, wants))
        body = connection.ask(Api.FETCH, request, next(iter(some)), timeout_s)
        for row in unpack_fetch_reply(body)[1]:
            tp = some[row.partition]
            records = decode(bytes(row.data)) if row.data and not row.error else ()
            stamp = next((record.timestamp for record in records if record.offset >= offsets[tp]), None)
            if stamp is not None:
                found[tp] = stamp
    return found


def behind_ms(timestamp: int, now_ms: float | None = None) -> int:
    """How long ago a record was made, never negative: clocks of others may be ahead.

    >>> behind_ms(1000, now_ms=1500), behind_ms(2000, now_ms=1500)
    (500, 0)
    """
    return max(0, int((time.time() * 1000 if now_ms is None else now_ms) - timestamp))
