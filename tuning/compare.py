"""Proves a gain: the same short load on throw-away nodes with the settings before and after, in turns."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from ringlog.client.admin import Admin
from ringlog.client.producer import Producer
from ringlog.config import NodeConfig
from ringlog.node.embedded import embedded
from tuning.apply.config_text import toml_value
from tuning.probe.statistics import percentile

ROUNDS = 3
SECONDS_DEFAULT = 3.0
"""Of each load in each round."""
PARTITIONS = 16
CHUNK_BYTES = 1 << 20
CHUNKS_AHEAD = 4
ANSWER_S = 60.0
TOPIC = "tune"
_SINGLES_MIN = 5
_OWN = (
    "data_dir",
    "listen",
    "insecure",
    "metrics_listen",
    "node_id",
    "cluster",
    "rack",
    "advertise",
)


class Load(msgspec.Struct, frozen=True):
    """What is sent."""

    name: str
    record_bytes: int
    one_at_a_time: bool
    unit: str
    more_is_better: bool


LOADS = (
    Load("many records of 1 KB", 1000, False, "MB/s", True),
    Load("many records of 100 B", 100, False, "MB/s", True),
    Load("one record at a time, p50", 100, True, "ms", False),
)


class Compared(msgspec.Struct, frozen=True):
    """One load under both settings: the medians of all rounds."""

    load: Load
    before: float
    after: float
    before_rounds: list[float]
    after_rounds: list[float]

    @property
    def gain(self) -> float:
        """How many times as good it is after: above 1 is better, whatever the unit."""
        return self.after / self.before if self.load.more_is_better else self.before / self.after


def compare(
    directory: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    seconds: float = SECONDS_DEFAULT,
    rounds: int = ROUNDS,
    loads: tuple[Load, ...] = LOADS,
    on_progress: Callable[[float, str], None] = lambda share, name: None,
) -> list[Compared]:
    """Run each load on a fresh node with one, then with the other settings, several times: a slow moment of the machine
    hits both."""
    found: dict[tuple[str, str], list[float]] = {}
    turns = [
        (number, name, settings)
        for number in range(rounds)
        for name, settings in (("before", before), ("after", after))
    ]
    for done, (number, name, settings) in enumerate(turns):
        on_progress(done / len(turns), f"round {number + 1} of {rounds}, {name}")
        for load, figure in zip(loads, _run_node(directory, settings, loads, seconds), strict=True):
            found.setdefault((load.name, name), []).append(figure)
    on_progress(1.0, "done")
    return [
        Compared(
            load,
            percentile(found[load.name, "before"], 0.5),
            percentile(found[load.name, "after"], 0.5),
            found[load.name, "before"],
            found[load.name, "after"],
        )
        for load in loads
    ]


def tunable(config: NodeConfig) -> dict[str, Any]:
    """The settings that a throw-away node shall have too: all but who it is, where it listens, which cluster it belongs
    to, and what is None."""
    settings = msgspec.structs.asdict(config)
    return {name: value for name, value in settings.items() if name not in _OWN and value is not None}


def _run_node(
    directory: str, settings: Mapping[str, Any], loads: tuple[Load, ...], seconds: float
) -> list[float]:
    os.makedirs(directory, mode=0o700, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix="compare-", dir=directory)
    try:
        config = os.path.join(scratch, "compare.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.writelines(f"{name} = {toml_value(value)}\n" for name, value in settings.items())
        with embedded(data_dir=os.path.join(scratch, "data"), config=config) as node:
            return [
                _run_load(node.bootstrap, f"{TOPIC}-{at}", load, seconds) for at, load in enumerate(loads)
            ]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_load(bootstrap: str, topic: str, load: Load, seconds: float) -> float:
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, num_partitions=PARTITIONS)
    with Producer(bootstrap=bootstrap, linger_ms=0 if load.one_at_a_time else 5) as producer:
        if load.one_at_a_time:
            return _singles(producer, topic, load, seconds)
        return _stream(producer, topic, load, seconds)


def _stream(producer: Producer, topic: str, load: Load, seconds: float) -> float:
    """MB/s until the last acknowledgement."""
    count = CHUNK_BYTES // load.record_bytes
    values = np.random.default_rng(7).integers(0, 256, (count, load.record_bytes), dtype=np.uint8)
    producer.produce_many(topic, values).result(ANSWER_S)  # connections, files and pages are there now
    waiting: list[Any] = []
    sent = 0
    began = time.perf_counter()
    while not sent or time.perf_counter() - began < seconds:
        waiting.append(producer.produce_many(topic, values))
        sent += values.nbytes
        if len(waiting) > CHUNKS_AHEAD:
            waiting.pop(0).result(ANSWER_S)
    for future in waiting:
        future.result(ANSWER_S)
    return sent / (time.perf_counter() - began) / 1e6


def _singles(producer: Producer, topic: str, load: Load, seconds: float) -> float:
    """Milliseconds from produce to acknowledgement: the median."""
    value = b"x" * load.record_bytes
    producer.produce(topic, value).result(ANSWER_S)
    waits: list[float] = []
    until = time.perf_counter() + seconds
    while len(waits) < _SINGLES_MIN or time.perf_counter() < until:
        began = time.perf_counter()
        producer.produce(topic, value).result(ANSWER_S)
        waits.append(time.perf_counter() - began)
    return percentile(waits, 0.5) * 1e3
