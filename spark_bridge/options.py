"""The options of the source, under the names that users of Spark's Kafka source know: parsed and checked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringlog.client.settings import default_bootstrap, endpoints_of
from ringlog.errors import InvalidRequest
from ringlog.model import TopicPartition
from spark_bridge.bad_values import MODES

EARLIEST = -2
LATEST = -1
"""What Kafka's source takes for the ends of a partition in a map of offsets."""

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
VALUE_FORMATS = ("binary", "json", "arrow")

_NAMES = (
    "assign",
    "bootstrap",
    "bridge",
    "columns",
    "endingOffsets",
    "endingTimestamp",
    "failOnDataLoss",
    "groupId",
    "includeHeaders",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "mode",
    "operationTimeoutMs",
    "startingOffsets",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
    "valueFormat",
    "valueSchema",
)
PATIENCE_MS = 60_000
"""A node that is restarted is back within seconds; one that scans its logs after a crash takes longer."""

_CANONICAL = {name.lower(): name for name in _NAMES}
_KAFKA_WORDS = {
    "kafka.bootstrap.servers": "bootstrap",
    "kafka.group.id": "groupId",
    "groupidprefix": "groupId",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "kafkaconsumer.polltimeoutms": "operationTimeoutMs",
    "fetchoffset.numretries": "operationTimeoutMs",
    "fetchoffset.retryintervalms": "operationTimeoutMs",
    "path": "subscribe",
    "topic": "subscribe",
}
"""Options of Kafka's source, and what stands for them here."""
_BATCH_ONLY = ("endingOffsets", "endingTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "groupId")

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query asked for."""

    bootstrap: str
    bridge: str
    """"auto": ask the node for one; "off": read the brokers; else where it listens."""
    subscribe: tuple[str, ...]
    pattern: str | None
    assign: tuple[TopicPartition, ...]
    starting: int | Offsets
    """EARLIEST, LATEST, or an offset (or one of these words) for each partition."""
    starting_ms: int | None
    ending: int | Offsets
    ending_ms: int | None
    fail_on_data_loss: bool
    offsets_per_trigger_max: int | None
    partitions_min: int | None
    columns: tuple[str, ...]
    value_format: str
    value_schema: str | None
    mode: str
    """What becomes of values that do not fit it: one of `bad_values.MODES`."""
    group_id: str | None
    patience_s: float
    """How long the node may be away before the query fails."""


def source_options(given: Mapping[str, str], streaming: bool | None = None) -> SourceOptions:
    """Checked options; InvalidRequest names what is wrong and the option that is right. None for `streaming`: it is
    not known yet whether the query is one, only the schema is asked for."""
    options = _known(given)
    _check_side(options, streaming)
    value_format = _one_of(options, "valueFormat", VALUE_FORMATS)
    _check_together(options, value_format)
    columns = _columns(options.get("columns"), _boolean(options, "includeHeaders", False))
    if value_format != "binary" and "value" not in columns:
        raise InvalidRequest(
            "option 'columns' leaves out 'value', and 'valueFormat' says what is in it: say one of them"
        )
    bootstrap = options.get("bootstrap") or default_bootstrap()
    endpoints_of(bootstrap)
    starting = _offsets(options, "startingOffsets", LATEST if streaming else EARLIEST)
    starting_ms = _number(options, "startingTimestamp", 0)
    ending = _offsets(options, "endingOffsets", LATEST)
    ending_ms = _number(options, "endingTimestamp", 0)
    _check_order(starting, starting_ms, ending, ending_ms)
    return SourceOptions(
        bootstrap=bootstrap,
        bridge=_bridge(options.get("bridge", "auto")),
        subscribe=_names(options["subscribe"], "subscribe") if "subscribe" in options else (),
        pattern=options.get("subscribePattern"),
        assign=_assigned(options["assign"]) if "assign" in options else (),
        starting=starting,
        starting_ms=starting_ms,
        ending=ending,
        ending_ms=ending_ms,
        fail_on_data_loss=_boolean(options, "failOnDataLoss", True),
        offsets_per_trigger_max=_number(options, "maxOffsetsPerTrigger", 1),
        partitions_min=_number(options, "minPartitions", 1),
        columns=columns,
        value_format=value_format,
        value_schema=options.get("valueSchema"),
        mode=_one_of(options, "mode", MODES),
        group_id=options.get("groupId"),
        patience_s=(_number(options, "operationTimeoutMs", 1) or PATIENCE_MS) / 1000,
    )


def _known(given: Mapping[str, str]) -> dict[str, str]:
    """The options by the names that we write; Spark does not care about the case of letters."""
    options: dict[str, str] = {}
    for name, value in given.items():
        known = _CANONICAL.get(name.lower())
        if known is None:
            kafkas = _KAFKA_WORDS.get(name.lower())
            near = difflib.get_close_matches(name.lower(), _CANONICAL, n=1, cutoff=0.0)
            raise InvalidRequest(
                f"the source has no option '{name}'; did you mean '{kafkas or _CANONICAL[near[0]]}'?"
            )
        options[known] = str(value)
    return options


def _check_side(options: Mapping[str, str], streaming: bool | None) -> None:
    for name in _BATCH_ONLY if streaming else _STREAM_ONLY if streaming is False else ():
        if name in options:
            instead = (
                "a stream has no end: stop the query, or use trigger(availableNow=True)"
                if streaming
                else "say startingOffsets and endingOffsets"
                if name == "maxOffsetsPerTrigger"
                else "only a stream makes progress that is committed"
            )
            side = "batch reads" if streaming else "streams"
            raise InvalidRequest(f"option '{name}' is for {side}: {instead}")


def _check_together(options: Mapping[str, str], value_format: str) -> None:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if not ways:
        raise InvalidRequest("say what to read: option 'subscribe', 'subscribePattern' or 'assign'")
    for one, other in [
        tuple(ways[:2]) if len(ways) > 1 else ("", ""),
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
    ]:
        if one in options and other in options:
            raise InvalidRequest(f"options '{one}' and '{other}' contradict each other: say one of them")
    if "valueSchema" in options and value_format == "binary":
        raise InvalidRequest("option 'valueSchema' needs 'valueFormat': json or arrow")
    if "mode" in options and value_format == "binary":
        raise InvalidRequest(
            "option 'mode' needs 'valueFormat': it says what becomes of values that are no json or arrow"
        )
    if value_format != "binary" and "valueSchema" not in options:
        raise InvalidRequest("option 'valueFormat' needs 'valueSchema', such as 'user STRING, at TIMESTAMP'")


def _check_order(
    starting: int | Offsets, starting_ms: int | None, ending: int | Offsets, ending_ms: int | None
) -> None:
    """A read that ends before it begins is a mistake, and not an empty one."""
    if starting_ms is not None and ending_ms is not None and starting_ms > ending_ms:
        raise InvalidRequest(
            f"options 'startingTimestamp' and 'endingTimestamp' contradict: {starting_ms} is after {ending_ms}"
        )
    if isinstance(starting, int) or isinstance(ending, int):
        return
    for tp, start in starting.items():
        end = ending.get(tp, LATEST)
        if end != LATEST and start > end:
            raise InvalidRequest(
                f"options 'startingOffsets' and 'endingOffsets' contradict each other: {tp} would begin at {start} and "
                f"end at {end}"
            )


def _columns(text: str | None, headers: bool) -> tuple[str, ...]:
    if text is None:
        return COLUMNS if headers else COLUMNS[:-1]
    known = {name.lower(): name for name in COLUMNS}
    wanted = _names(text, "columns")
    for name in wanted:
        if name.lower() not in known:
            raise InvalidRequest(f"option 'columns': there is no '{name}'; there are {', '.join(COLUMNS)}")
    chosen = {known[name.lower()] for name in wanted} | ({"headers"} if headers else set())
    return tuple(name for name in COLUMNS if name in chosen)


def _names(text: str, option: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise InvalidRequest(f"option '{option}' is empty: say names, with commas between them")
    return names


def _bridge(text: str) -> str:
    if text.lower() in ("auto", "off"):
        return text.lower()
    try:
        endpoints_of(text)
    except InvalidRequest as wrong:
        raise InvalidRequest(
            f"option 'bridge' is auto, off or an address such as 127.0.0.1:9500: {wrong}"
        ) from None
    return text


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InvalidRequest(f"option '{name}' must be true or false, not '{text}'")
    return text.lower() == "true"


def _number(options: Mapping[str, str], name: str, low: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < low:
        raise InvalidRequest(f"option '{name}' must be a number from {low} on, not '{text}'")
    return int(text)


def _one_of(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    found = {one.lower(): one for one in allowed}.get(options.get(name, allowed[0]).lower())
    if found is None:
        raise InvalidRequest(f"option '{name}' must be one of {', '.join(allowed)}, not '{options[name]}'")
    return found


def _json(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise InvalidRequest(f"option '{option}' must be JSON such as {example}, not '{text}'")
    return found


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = '{"orders": [0, 1]}'
    found = []
    for topic, partitions in _json(text, "assign", example).items():
        if not isinstance(partitions, list) or not all(type(one) is int and one >= 0 for one in partitions):
            raise InvalidRequest(f"option 'assign': '{topic}' needs a list of partitions, as in {example}")
        found += [TopicPartition(topic, one) for one in partitions]
    if not found:
        raise InvalidRequest(f"option 'assign' names no partition; it is like {example}")
    return tuple(dict.fromkeys(found))


def _offsets(options: Mapping[str, str], name: str, default: int) -> int | Offsets:
    text = options.get(name)
    if text is None:
        return default
    words = {"earliest": EARLIEST, "latest": LATEST}
    word = words.get(text.strip().lower())
    if word is not None:
        if name == "endingOffsets" and word == EARLIEST:
            raise InvalidRequest("option 'endingOffsets' must be latest or JSON: nothing ends at earliest")
        return word
    example = (
        '{"orders": {"0": 23, "1": -2}}' if name == "startingOffsets" else '{"orders": {"0": 50, "1": -1}}'
    )
    low = EARLIEST if name == "startingOffsets" else LATEST
    found: Offsets = {}
    for topic, partitions in _json(text, name, example).items():
        if not isinstance(partitions, dict):
            raise InvalidRequest(f"option '{name}': '{topic}' needs offsets by partition, as in {example}")
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int or offset < low:
                raise InvalidRequest(
                    f"option '{name}': '{topic}' partition '{partition}' needs an offset from {low} on, as in {example}"
                )
            found[TopicPartition(topic, int(partition))] = offset
    return found
