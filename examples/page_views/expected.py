"""What the counts must be: worked out from the input topic without Spark, and compared with what the job wrote."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.json as pj

from examples.page_views.job import COUNTS, VIEWS
from ringlog.client.consumer import Consumer

Counts = dict[tuple[str, str], int]
"""Views by page and start of the window, "2026-01-31T12:00:10"."""
_WINDOW_S = 10
_END = "/end"
"""The page whose view closes the windows; its own window stays open, so it is not counted."""


def from_input(bootstrap: str) -> Counts:
    """Counted from the views themselves."""
    values = pc.cast(_read(bootstrap, VIEWS)["value"], pa.string())
    lines = "\n".join(values.to_pylist()).encode()
    schema = pa.schema([("page", pa.string()), ("at", pa.string())])
    views = pj.read_json(
        io.BytesIO(lines),
        pj.ReadOptions(block_size=len(lines) + 1),
        pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    views = views.filter(pc.not_equal(views["page"], _END))
    starts = pc.floor_temporal(views["at"].cast(pa.timestamp("ms", "UTC")), _WINDOW_S, "second")
    table = (
        pa.table({"page": views["page"], "start": starts})
        .group_by(["page", "start"])
        .aggregate([([], "count_all")])
    )
    return {
        (row["page"], row["start"].strftime("%Y-%m-%dT%H:%M:%S")): row["count_all"]
        for row in table.to_pylist()
    }


def from_topic(bootstrap: str) -> Counts:
    """The newest count of each key, as whoever builds a table from a compacted topic sees it."""
    records = _read(bootstrap, COUNTS)
    newest: dict[bytes, dict[str, object]] = {}
    for key, value in zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True):
        newest[key] = json.loads(value)
    return {(str(row["page"]), str(row["start"])[:19]): int(str(row["views"])) for row in newest.values()}


def from_parquet(directory: str) -> Counts:
    """What the Parquet files say."""
    counts: Counts = {}
    for row in ds.dataset(directory, format="parquet", exclude_invalid_files=True).to_table().to_pylist():
        place = (row["page"], row["start"].strftime("%Y-%m-%dT%H:%M:%S"))
        counts[place] = counts.get(place, 0) + row["views"]
    return counts


def differences(expected: Counts, found: Mapping[tuple[str, str], int], where: str) -> list[str]:
    """What is wrong, in words; nothing when all is right.

    >>> differences({("/a", "12:00"): 3}, {("/a", "12:00"): 2, ("/b", "12:00"): 1}, "Parquet")
    ['Parquet: /a 12:00 has 2 views instead of 3', 'Parquet: /b 12:00 has 1 views instead of 0']
    """
    return [
        f"{where}: {page} {start} has {found.get((page, start), 0)} views instead of {expected.get((page, start), 0)}"
        for page, start in sorted(expected.keys() | found.keys())
        if found.get((page, start), 0) != expected.get((page, start), 0)
    ]


def _read(bootstrap: str, topic: str) -> pa.Table:
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        places = [(topic, index) for index in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        batches = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            batch = consumer.poll_arrow(timeout_ms=200)
            if batch is not None:
                batches.append(batch)
    return pa.Table.from_batches(batches)
