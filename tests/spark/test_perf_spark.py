"""The benchmarks of the Spark bridge run on tiny inputs, so that they cannot rot."""

from __future__ import annotations

import pytest

import ringlog
from perf.spark.benchmarks import BENCHMARKS
from perf.spark.scale import TINY
from perf.spark.setting import SparkBench, node_bench


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_measures_itself_and_its_limit(spark, name, tmp_path):
    with ringlog.embedded() as node:
        found = BENCHMARKS[name](SparkBench(TINY, node_bench(node, str(tmp_path)), spark))
    for result in found if isinstance(found, list) else [found]:
        assert result.value > 0
        assert result.limit_value > 0
        assert result.ratio > 0
