"""The settings and metrics that docs/OPERATIONS.md lists are those of the code."""

from __future__ import annotations

import re
import tomllib

import msgspec

from ringlog.config import NodeConfig, load_config
from ringlog.controller.topic_config import SETTINGS
from ringlog.node.group_metrics import METRICS as GROUP_METRICS
from ringlog.node.metrics import _GAUGES
from ringlog.ring.stats import COUNTERS, HISTOGRAMS
from tests.support.markdown import DOCS, tables

TEXT = (DOCS / "OPERATIONS.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    return [[cell.replace("`", "") for cell in row] for row in tables(TEXT, heading)[0][1:]]


def test_every_setting_of_a_node_is_listed_with_its_default():
    found = {name: default for name, default, *_ in rows("Settings of a node")}
    fields = {field.name: field.default for field in msgspec.structs.fields(NodeConfig)}
    fields["topic_defaults"] = NodeConfig(data_dir="/x").topic_defaults
    assert list(found) == list(fields)
    assert found.pop("data_dir") == "see above" and found.pop("metrics_listen") == "none"
    for name, default in found.items():
        assert tomllib.loads(f"x = {default}")["x"] == fields[name], name


def test_the_example_of_a_configuration_file_is_taken(tmp_path):
    example = re.search(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert example is not None
    path = tmp_path / "node.toml"
    path.write_text(example[1])
    assert load_config(str(path)).shards == 4


def test_every_setting_of_a_topic_is_listed_with_its_default():
    assert {name: default for name, default, *_ in rows("Settings of a topic")} == {
        name: setting.default for name, setting in SETTINGS.items()
    }


def test_every_metric_is_listed():
    counters = [f"ringlog_{name}" if name in _GAUGES else f"ringlog_{name}_total" for name in COUNTERS]
    histograms = [f"ringlog_{name.removesuffix('_us')}_seconds" for name in HISTOGRAMS]
    partitions = [f"ringlog_partition_{name}_total" for name in ("bytes_in", "records_in", "bytes_out")]
    assert [name for name, *_ in rows("Metrics")] == [
        "ringlog_up",
        "ringlog_silent_ms",
        *counters,
        *histograms,
        *partitions,
        *GROUP_METRICS,
    ]
