"""What `ringlog start`, `stop` and `metrics` do: call the node, and print what it said."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cli.counted import counted
from cli.output import print_json
from cli.wrong_usage import judging_options

if TYPE_CHECKING:
    from ringlog.config import NodeConfig
    from ringlog.node.identity import NodeInfo
    from ringlog.node.supervisor import Supervisor

LOG_FORMAT = "%(asctime)s %(processName)s %(levelname)s %(message)s"
_SAMPLE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def run_node(
    config_path: str | None, given: Mapping[str, Any], *, bridge: bool, verbose: bool, as_json: bool
) -> int:
    """Run a node in this process until it is told to stop; the exit code."""
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format=LOG_FORMAT)
    config = _config(config_path, given)

    def with_bridge(endpoints: list[str], parent: int) -> int:
        from cli.bridge_run import start_bridge

        return start_bridge(endpoints[0], insecure=config.insecure, die_with=parent)

    def say_ready(info: NodeInfo) -> None:
        if as_json:
            print_json(
                {"ready": True, "pid": info.pid, "endpoints": info.endpoints, "data_dir": config.data_dir}
            )
        else:
            shards = counted(info.shards, "shard")
            print(f"ringlog is ready on {info.endpoints[0]}, with {shards}, data in {config.data_dir}")
        sys.stdout.flush()

    return _supervisor(config).run(say_ready, with_bridge if bridge else None)


def _supervisor(config: NodeConfig) -> Supervisor:
    """Who will run the node. Its directory is locked before anything is loaded that takes time: from then on
    `ringlog stop` finds it."""
    from ringlog.node.identity import DataDirLock

    lock = DataDirLock(config.data_dir)
    lock.take()
    try:
        _warn_of_memory(config.data_dir)
        from ringlog.node.supervisor import Supervisor

        return Supervisor(config, lock)
    except BaseException:
        lock.abandon()
        raise


def _config(path: str | None, given: Mapping[str, Any]) -> NodeConfig:
    """The settings of the node; wrong usage when it is the options that no node could keep to, not the file."""
    from ringlog.config import load_config
    from ringlog.errors import InvalidRequest

    try:
        return load_config(path, **given)
    except InvalidRequest:
        load_config(path, data_dir=given.get("data_dir"))  # the file by itself: then that is what is wrong
        with judging_options():
            return load_config(path, **given)


def _warn_of_memory(data_dir: str) -> None:
    """An acknowledgement promises more than a file system in memory can keep."""
    from tuning.doctor import read_facts
    from tuning.doctor.check_storage import memory_under

    storage = read_facts.read_storage(data_dir)
    kind = memory_under(storage)
    if kind:
        print(
            f"ringlog: WARNING: {data_dir} is in memory ({kind} at {storage.mount_point}): what is acknowledged as "
            "flushed survives no reboot and no loss of power there. Name a directory on a disk: --data-dir DIR",
            file=sys.stderr,
            flush=True,
        )


def stop_node(data_dir: str, timeout_s: float, *, as_json: bool) -> None:
    """Stop the node of a directory."""
    from ringlog.node.control import stop

    pid = stop(data_dir, timeout_s)
    if as_json:
        print_json({"stopped": True, "pid": pid, "data_dir": data_dir})
    else:
        print(f"Stopped the node with pid {pid}.")


def print_metrics(data_dir: str, *, as_json: bool) -> None:
    """Print all counters of a node."""
    from ringlog.node.metrics_server import all_metrics

    text = all_metrics(data_dir)
    if not as_json:
        sys.stdout.write(text)
        return
    for sample in samples(text):
        print_json(sample)


def samples(text: str) -> Iterator[dict[str, Any]]:
    """The samples of a Prometheus text.

    >>> next(samples('# TYPE up gauge\\nup{role="net",index="0"} 1\\n'))
    {'name': 'up', 'labels': {'role': 'net', 'index': '0'}, 'value': 1.0}
    """
    for line in text.splitlines():
        if found := _SAMPLE.fullmatch(line):
            labels = dict(_LABEL.findall(found["labels"] or ""))
            yield {"name": found["name"], "labels": labels, "value": float(found["value"])}
