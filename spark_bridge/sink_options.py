"""What a user says of the sink: its options and the columns of its DataFrame, checked on the driver. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ringlog.client.settings import ProducerSettings, settings_of
from ringlog.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_PRODUCER = {
    "bootstrap": "bootstrap",
    "compressiontype": "compression_type",
    "compressionlevel": "compression_level",
    "batchsize": "batch_size",
    "buffermemory": "buffer_memory",
    "deliverytimeoutms": "delivery_timeout_ms",
}
"""Options that a producer's setting stands behind; Spark hands option names over in lower case."""
_OPTIONS = (
    "bootstrap",
    "topic",
    "compressionType",
    "compressionLevel",
    "batchSize",
    "bufferMemory",
    "deliveryTimeoutMs",
)
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
"""What Spark itself reads, and hands on."""
_MEANT = {
    "kafka.bootstrap.servers": "bootstrap",
    "bootstrap.servers": "bootstrap",
    "subscribe": "topic",
    "path": "topic",
    "kafka.compression.type": "compressionType",
    "kafka.batch.size": "batchSize",
    "kafka.buffer.memory": "bufferMemory",
    "kafka.delivery.timeout.ms": "deliveryTimeoutMs",
}
"""What users of other sinks would write."""
_COLUMNS = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
"""The types that a column may have, in Spark's short words."""
_CASTS = {
    "key": ": CAST(key AS string)",
    "value": ": CAST it, or use to_json(struct(…)) for several columns",
    "partition": ": CAST(partition AS int)",
    "timestamp": ": CAST(timestamp AS timestamp)",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where the records go."""

    topic: str | None
    """None: the column `topic` says it for each record."""
    producer: dict[str, Any]
    """Settings of each task's producer."""

    @property
    def bootstrap(self) -> str:
        return str(self.producer["bootstrap"])

    @property
    def delivery_timeout_s(self) -> float:
        return settings_of(ProducerSettings, self.producer).delivery_timeout_ms / 1000


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Checked options. InvalidRequest names the right one for each that is wrong.

    >>> sink_options({"topic": "orders", "bootstrap": "db1:9400", "batchSize": "65536"}).producer
    {'bootstrap': 'db1:9400', 'batch_size': 65536, 'max_block_ms': 120000}
    >>> sink_options({"topics": "orders"})
    Traceback (most recent call last):
    ringlog.errors.InvalidRequest: the ringlog sink has no option 'topics'; did you mean 'topic'?
    """
    topic: str | None = None
    settings: dict[str, Any] = {}
    fields = {field.name: field.type for field in msgspec.structs.fields(ProducerSettings)}
    for name, text in given.items():
        lower = name.lower()
        if lower == "topic":
            topic = text
        elif lower in _PRODUCER:
            setting = _PRODUCER[lower]
            try:
                settings[setting] = msgspec.convert(text, fields[setting], strict=False)
            except msgspec.ValidationError as wrong:
                raise InvalidRequest(f"option {name} = {text!r}: {wrong}") from None
        elif lower not in _OF_SPARK:
            near = difflib.get_close_matches(lower, [option.lower() for option in _OPTIONS], n=1, cutoff=0.0)
            meant = _MEANT.get(lower) or next(option for option in _OPTIONS if option.lower() == near[0])
            raise InvalidRequest(f"the ringlog sink has no option {name!r}; did you mean {meant!r}?")
    if topic == "":
        raise InvalidRequest("option topic is empty: name a topic, or leave it out and have a column `topic`")
    known = settings_of(ProducerSettings, settings)
    settings["bootstrap"] = known.bootstrap  # as it is here: the environment of executors may be another one
    # A full buffer means that the node is slower than Spark; only a node that takes nothing at all is an error.
    settings["max_block_ms"] = known.delivery_timeout_ms
    return SinkOptions(topic, settings)


def check_schema(schema: StructType, options: SinkOptions, *, overwrite: bool) -> None:
    """Refuse what cannot be written, before any task runs: InvalidRequest says what to write instead."""
    if overwrite:
        raise InvalidRequest('a log is only appended to: use mode("append") or outputMode("append")')
    for name in schema.names:
        if name not in _COLUMNS:
            raise InvalidRequest(
                f"the ringlog sink knows no column {name!r}: it takes {', '.join(_COLUMNS)}. "
                "Put it into `value`, for instance with to_json(struct(*))"
            )
        if schema.names.count(name) > 1:
            raise InvalidRequest(f"there are {schema.names.count(name)} columns {name!r}: select one")
        kind = schema[name].dataType.simpleString()
        if kind.partition(" collate ")[0] not in _COLUMNS[name]:
            wanted = " or ".join(_COLUMNS[name])
            raise InvalidRequest(f"column {name!r} is {kind}, but must be {wanted}{_CASTS.get(name, '')}")
    if "value" not in schema.names:
        raise InvalidRequest("there is no column 'value': it is the one that every record needs")
    if "topic" not in schema.names and options.topic is None:
        raise InvalidRequest("where to? Say option('topic', NAME), or have a column 'topic'")
